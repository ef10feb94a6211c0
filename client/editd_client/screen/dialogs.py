"""The questions of the screen: a line of text at the bottom, a choice of keys, and a choice of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from editd_client.screen.lines import Line, TextSpan, cut
from editd_client.screen.panes import Pane

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from editd_client.screen.panes import Terminal

Answer = TypeVar("Answer")


class LineQuestion(ModalScreen[str | None]):
    """A question with a line of text. Enter gives it, Escape leaves."""

    DEFAULT_CSS = """
    LineQuestion { align: left bottom; background: transparent; }
    LineQuestion > Static {
        width: 100%; height: auto; background: ansi_default; color: ansi_default; text-style: bold;
    }
    LineQuestion > Input {
        width: 100%; height: 1; border: none; padding: 0 1; background: ansi_default; color: ansi_default;
    }
    LineQuestion > Input:focus { border: none; background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", priority=True)]

    def __init__(self, title: str, text: str, *, is_hidden: bool) -> None:
        super().__init__()
        self._title, self._text, self._is_hidden = title, text, is_hidden

    def compose(self) -> ComposeResult:
        yield Static(f" {self._title}   (enter sends, esc leaves)", markup=False)
        yield Input(self._text, password=self._is_hidden, select_on_focus=False, compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)


class LinesScreen(ModalScreen[Answer | None]):
    """Lines over the whole screen, a title above them, and the keys below. Escape and q leave."""

    DEFAULT_CSS = """
    LinesScreen { background: ansi_default; }
    LinesScreen > Pane { position: relative; }
    LinesScreen > #question { height: 2; }
    LinesScreen > #answers { height: 1; dock: bottom; }
    LinesScreen > #lines { height: 1fr; }
    """

    def __init__(self, title: str, lines: Sequence[Line], terminal: Terminal) -> None:
        super().__init__()
        self._title, self._lines, self._terminal = title, lines, terminal
        self._top = 0

    def compose(self) -> ComposeResult:
        yield Pane(self._terminal, "question", self._title_line)
        yield Pane(
            self._terminal, "lines", self._line,
            is_cursor=self._is_cursor, on_press=self._click, on_wheel=self._wheel,
        )  # fmt: skip
        yield Pane(self._terminal, "answers", self._answers_line, on_press=self._click)

    def _title_line(self, row: int, width: int) -> Line | None:
        return Line(tuple(cut((TextSpan(f" {self._title}", "bold"),), width))) if row == 0 else None

    def _line(self, row: int, width: int) -> Line | None:
        number = self._top + row
        return Line(tuple(cut(self._spans(number), width))) if number < len(self._lines) else None

    def _answers_line(self, _row: int, width: int) -> Line:
        spans = [TextSpan(" ")]
        for key, text in self._answers().items():
            spans += [TextSpan(key, "key", key), TextSpan(f" {text}   ", "", key)]
        spans += [TextSpan("esc", "key", "escape"), TextSpan(" leave it", "", "escape")]
        spans.append(TextSpan(f"   {self._status()}", "dim"))
        return Line(tuple(cut(spans, width)))

    def _spans(self, number: int) -> tuple[TextSpan, ...]:
        return self._lines[number].spans

    def _is_cursor(self, _row: int) -> bool:
        return False

    def _answers(self) -> Mapping[str, str]:
        raise NotImplementedError

    def _status(self) -> str:
        return f"{len(self._lines)} lines" if len(self._lines) > self._height else ""

    @property
    def _height(self) -> int:
        return max(1, self.size.height - 3)

    def _wheel(self, _pane: str, rows: int) -> None:
        self._top = min(max(0, self._top + rows), max(0, len(self._lines) - self._height))
        self._repaint()

    def _repaint(self) -> None:
        for pane in self.query(Pane):
            pane.refresh()

    def _click(self, _pane: str, _row: int, key: str) -> None:
        if key:
            self._press(key)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        key = event.character if event.is_printable and event.character else event.key
        self._press("space" if key == " " else key)

    def _press(self, key: str) -> None:
        if key in ("escape", "q"):
            self.dismiss(None)


class KeyQuestion(LinesScreen[str]):
    """Lines that scroll, and a key for each answer."""

    def __init__(
        self, title: str, lines: Sequence[Line], answers: Mapping[str, str], terminal: Terminal
    ) -> None:
        super().__init__(title, lines, terminal)
        self._choices = answers

    def _answers(self) -> Mapping[str, str]:
        return self._choices

    def _press(self, key: str) -> None:
        page, whole = self._height - 1, len(self._lines)
        steps = {
            "j": 1, "down": 1, "k": -1, "up": -1, "pagedown": page, "pageup": -page, "space": page,
            "ctrl+d": page // 2, "ctrl+u": -page // 2, "g": -whole, "home": -whole, "G": whole, "end": whole,
        }  # fmt: skip
        if key in self._choices:
            self.dismiss(key)
        elif key in steps:
            self._wheel("lines", steps[key])
        else:
            super()._press(key)


class LinePicker(LinesScreen[frozenset[int]]):
    """Lines, some with a box. Enter returns the taken lines: at first all."""

    def __init__(self, title: str, lines: Sequence[Line], rows: frozenset[int], terminal: Terminal) -> None:
        super().__init__(title, lines, terminal)
        self._rows = sorted(rows)  # with a box
        self._taken = rows
        self._cursor = min(rows, default=0)

    def _answers(self) -> Mapping[str, str]:
        return {"space": "take or leave", "a": "all or none", "enter": "go on"}

    def _status(self) -> str:
        return f"{len(self._taken)} of {len(self._rows)} taken"

    def _is_cursor(self, row: int) -> bool:
        return self._top + row == self._cursor

    def _spans(self, number: int) -> tuple[TextSpan, ...]:
        box = "    " if number not in self._rows else "[x] " if number in self._taken else "[ ] "
        sign = "▌" if number == self._cursor else " "
        return (TextSpan(sign + box, "bold"), *super()._spans(number))

    def _click(self, pane: str, row: int, key: str) -> None:
        if pane == "lines" and self._top + row in self._rows:
            self._cursor, key = self._top + row, "space"
        super()._click(pane, row, key)

    def _press(self, key: str) -> None:
        steps = {"j": 1, "down": 1, "k": -1, "up": -1, "g": -len(self._rows), "G": len(self._rows)}
        if key == "enter":
            self.dismiss(self._taken)
        elif key == "space":
            self._taken ^= {self._cursor} & set(self._rows)
        elif key == "a":
            self._taken = frozenset() if self._taken else frozenset(self._rows)
        elif key in steps and self._rows:
            at = self._rows.index(self._cursor) + steps[key]
            self._cursor = self._rows[min(max(0, at), len(self._rows) - 1)]
            self._top = max(min(self._top, self._cursor), self._cursor - self._height + 1)
        else:
            super()._press(key)
        self._repaint()
