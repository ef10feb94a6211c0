"""The questions of the screen: a line of text at the bottom, and lines with a choice of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

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

HISTORY_MAX = 50


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


class KeyQuestion(ModalScreen[str | None]):
    """Lines over the whole screen, and a key for each answer. Escape and q leave."""

    DEFAULT_CSS = """
    KeyQuestion { background: ansi_default; }
    KeyQuestion > #question { height: 2; }
    KeyQuestion > #answers { height: 1; dock: bottom; }
    KeyQuestion > #lines { height: 1fr; }
    """

    def __init__(
        self, title: str, lines: Sequence[Line], answers: Mapping[str, str], terminal: Terminal
    ) -> None:
        super().__init__()
        self._title, self._lines, self._answers, self._terminal = title, lines, answers, terminal
        self._top = 0

    def compose(self) -> ComposeResult:
        yield Pane("question", self._terminal, self._title_line)
        yield Pane("lines", self._terminal, self._line, on_press=self._pressed, on_wheel=self._wheeled)
        yield Pane("answers", self._terminal, self._answer_line, on_press=self._pressed)

    def _title_line(self, row: int, width: int) -> Line | None:
        return Line(tuple(cut((TextSpan(f" {self._title}", "bold"),), width))) if row == 0 else None

    def _line(self, row: int, width: int) -> Line | None:
        number = self._top + row
        return Line(tuple(cut(self._lines[number].spans, width))) if number < len(self._lines) else None

    def _answer_line(self, _row: int, width: int) -> Line:
        spans = [TextSpan(" ")]
        for key, text in self._answers.items():
            spans += [TextSpan(key, "key", key), TextSpan(f" {text}   ", "", key)]
        more = f"   {len(self._lines)} lines" if len(self._lines) > self._height else ""
        spans += [
            TextSpan("esc", "key", "escape"),
            TextSpan(" leave it", "", "escape"),
            TextSpan(more, "dim"),
        ]
        return Line(tuple(cut(spans, width)))

    @property
    def _height(self) -> int:
        return max(1, self.size.height - 3)

    def _pressed(self, _pane: str, _row: int, key: str) -> None:
        if key:
            self._answer(key)

    def _wheeled(self, _pane: str, rows: int) -> None:
        self._top = min(max(0, self._top + rows), max(0, len(self._lines) - self._height))
        self.query_one("#lines").refresh()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        key = event.character if event.is_printable and event.character else event.key
        self._answer("space" if key == " " else key)

    def _answer(self, key: str) -> None:
        page = self._height - 1
        steps = {
            "j": 1, "down": 1, "k": -1, "up": -1, "pagedown": page, "pageup": -page, "space": page,
            "ctrl+d": page // 2, "ctrl+u": -page // 2, "g": -len(self._lines), "home": -len(self._lines),
            "G": len(self._lines), "end": len(self._lines),
        }  # fmt: skip
        if key in self._answers:
            self.dismiss(key)
        elif key in steps:
            self._wheeled("lines", steps[key])
        elif key in ("escape", "q"):
            self.dismiss(None)
