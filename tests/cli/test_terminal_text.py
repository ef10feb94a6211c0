"""Text of files on a terminal: each verb shows it without the control characters and colours of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.pseudo_terminal import PseudoTerminal
from support.workplace import write

if TYPE_CHECKING:
    from support.workplace import Workplace

HIDDEN = "seen \x1b[30mhidden\x1b[0m \x1b[8mx\x1b[2m \x1b[1mend\n"


def shown(place: Workplace, words: str, end: str, *, rows: int = 40, **variables: str) -> bytes:
    """Return what `editctl` prints on a terminal up to an end."""
    argv = [str(place.provide_editctl() / "editctl"), *words.split()]
    environment = {**place.environment, "EDITD_PAGER": "cat", **variables}
    with PseudoTerminal(argv, (200, rows), folder=str(place.root), environment=environment) as terminal:
        terminal.until(end)
        return terminal.text()


def test_no_colour_of_a_file_hides_a_text(place: Workplace) -> None:
    """The attack: black letters on a black terminal."""
    with place.start() as client:
        client.apply([write("a.txt", HIDDEN)])
        for words in ("read a.txt", "diff 0", "show 1", "blame a.txt"):
            text = shown(place, words, "seen .*end")
            assert rb"seen \x1b[30mhidden\x1b[0m \x1b[8mx\x1b[2m \x1b[1mend" in text, words


def test_a_diff_is_text_on_a_terminal(place: Workplace) -> None:
    place.write({"wide.txt": "\ufeffold\nsame\n".encode("utf-16-le"), "picture": bytes(120), "z.txt": "1\n"})
    with place.start() as client:
        wide = "\ufeffnew\nsame\n".encode("utf-16-le").decode("utf-8", "surrogateescape")
        client.apply([
            write("wide.txt", wide, force=True),
            write("picture", bytes(119).decode(), force=True),
            write("z.txt", "2\n", force=True),
        ])  # fmt: skip
        for words in ("diff 0", "show 1", "log -p", "show 0..1"):
            text = shown(place, words, r"\+2", rows=60, NO_COLOR="1").decode()
            assert "binary, 120 → 119 bytes" in text, words
            assert "-old" in text
            assert "+new" in text
            assert "GIT binary patch" not in text


def test_a_text_in_utf_16_is_found_in_the_changes(place: Workplace) -> None:
    place.write({"wide.txt": "\ufeffold\n".encode("utf-16-le")})
    with place.start() as client:
        client.settle()
        place.write({"wide.txt": "\ufeffnew\n".encode("utf-16-le")})
        client.settle()
    assert place.editctl("log", "--oneline", "-S", "new").stdout.startswith("1 ")
    assert place.editctl("log", "-S", "").returncode == 2
