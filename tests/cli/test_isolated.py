"""`editctl exec --isolated`: exactly what a command changed is an edit, whatever happens beside it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, NoReturn, cast

import pytest

from editd_client.errors import EditdError
from editd_client.isolated import Start, changes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

TEXT = "one\ntwo\nand\nmore\nthree\n"


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """Of a repository in which overlays work."""
    place.write({"a.txt": TEXT, "b.txt": TEXT, "run": "#!/bin/sh\n", "d/x": "x\n", "d/y": "y\n"})
    place.write({".gitignore": "ignored\n"})
    (place.root / "link").symlink_to("a.txt")
    subprocess.run(["git", "init", "-q", place.root], check=True)
    place.skip_without_overlay()
    with place.start() as made:
        made.settle()
        yield made
    place.stop()


def applying(place: Workplace, old: str, new: str) -> str:
    """Return a command by which another session edits a.txt through the daemon."""
    edit = f'[{{"op": "replace", "path": "a.txt", "old": "{old}", "new": "{new}", "guard": "text"}}]'
    return f"echo '{edit}' | {place.provide_editctl() / 'editctl'} apply --session other >/dev/null"


def test_what_it_changed_is_one_edit_merged_with_the_work_of_others(place: Workplace, client: Client) -> None:
    script = (
        "sed -i s/two/2/ a.txt; rm b.txt; rm -r d; mkdir d; echo new >d/z; chmod +x run; echo i >ignored; "
        f"touch .gitignore; ln -sfn d/z link; touch .git/made; {applying(place, 'three', '3')}; exit 3"
    )
    done = place.editctl("exec", "--isolated", "--session", "ci", "--", "sh", "-c", script)
    assert done.returncode == 3, done.stderr
    made = client.log().transactions[0]
    assert (made.kind, made.session) == ("edit", "ci"), done.stderr
    assert made.message.endswith("(exit status 3)")
    assert {(file.path, file.change) for file in made.files} == {
        ("a.txt", "modified"), ("b.txt", "deleted"), ("d/x", "deleted"), ("d/y", "deleted"), ("d/z", "added"),
        ("run", "mode"), ("link", "modified"),
    }  # fmt: skip
    assert place.files()["a.txt"] == TEXT.replace("two", "2").replace("three", "3").encode()
    assert os.access(place.root / "run", os.X_OK)
    assert os.readlink(place.root / "link") == "d/z"
    assert not (place.root / "ignored").exists()
    assert not (place.root / ".git/made").exists()
    assert "left out" in done.stderr


def test_a_file_in_the_place_of_a_folder_deletes_the_files_of_the_folder(
    place: Workplace, client: Client
) -> None:
    done = place.editctl("exec", "--isolated", "--", "sh", "-c", "rm -r d; echo file >d")
    assert done.returncode == 0, done.stderr
    (made,) = client.log(after=0).transactions
    assert {(file.path, file.change) for file in made.files} == {
        ("d", "added"), ("d/x", "deleted"), ("d/y", "deleted"),
    }  # fmt: skip


def test_a_conflict_keeps_its_files(place: Workplace, client: Client) -> None:
    script = f"{applying(place, 'two', 'zwei')}; sed -i s/one/1/ b.txt; echo mine >a.txt"
    done = place.editctl("exec", "--isolated", "--", "sh", "-c", script)
    assert done.returncode == 1
    assert "a.txt does not merge" in done.stderr
    kept = done.stderr.split("are kept in ")[1].splitlines()[0]
    with open(os.path.join(kept, "a.txt"), encoding="utf-8") as file:
        assert file.read() == "mine\n"
    assert place.files()["b.txt"] == TEXT.encode()
    assert [one.session for one in client.log(after=0).transactions] == ["other"]


def test_many_conflicts_are_ten_sentences_and_a_count(place: Workplace, client: Client) -> None:
    names = [f"many{number:02}" for number in range(30)]
    place.write(dict.fromkeys(names, "first\n"))
    client.settle()
    edits = json.dumps([
        {"op": "replace", "path": name, "old": "first", "new": "theirs", "guard": "text"} for name in names
    ])  # fmt: skip
    applying = f"echo '{edits}' | {place.provide_editctl() / 'editctl'} apply --session other >/dev/null"
    done = place.editctl(
        "exec", "--isolated", "--", "sh", "-c", f"{applying}; for f in many*; do echo mine >$f; done"
    )
    assert done.returncode == 1
    assert done.stderr.count("does not merge:") == 10
    assert "20 more files do not merge." in done.stderr
    assert "many10" not in done.stderr


def test_its_changes_can_wait_for_a_reviewer(place: Workplace, client: Client) -> None:
    done = place.editctl("exec", "--isolated", "--propose", "--", "sed", "-i", "s/one/1/", "a.txt")
    assert "[P1] waits for a reviewer" in done.stderr
    assert place.files()["a.txt"] == TEXT.encode()
    assert [one.paths for one in client.proposal_list().proposals] == [["a.txt"]]
    assert "--propose needs --isolated" in place.editctl("exec", "--propose", "--", "true").stderr


def test_a_command_that_changes_nothing_is_no_edit(place: Workplace, client: Client) -> None:
    done = place.editctl("exec", "--isolated", "--", "cat", "a.txt")
    assert (done.returncode, done.stdout) == (0, TEXT)
    assert client.log(after=0).transactions == []


def test_an_edit_keeps_the_mode_that_another_session_has_set_meanwhile(
    place: Workplace, client: Client
) -> None:
    chmod = """[{"op": "chmod", "path": "a.txt", "executable": true}]"""
    script = (
        f"sed -i s/two/2/ a.txt; echo '{chmod}' | {place.provide_editctl() / 'editctl'} apply --session other"
    )
    done = place.editctl("exec", "--isolated", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert place.files()["a.txt"] == TEXT.replace("two", "2").encode()
    assert os.access(place.root / "a.txt", os.X_OK)


class SwappingClient:
    """A client during whose request a process of the command changes the layer."""

    def __init__(self, swap: Callable[[], None]) -> None:
        self.read = self._read
        self._swap = swap

    def _read(self, path: str, *, at: int) -> NoReturn:
        self._swap()
        raise EditdError(0, "file_missing", f"{path} at {at}")


def test_a_symlink_that_a_process_of_the_command_puts_into_the_layer_is_not_followed(tmp_path: Path) -> None:
    root, upper, outside = (tmp_path / name for name in ("root", "upper", "outside"))
    for folder in (root, upper / "d", outside):
        folder.mkdir(parents=True)
    (outside / "x").write_text("of another folder")
    (upper / "d/x").write_text("of the command")

    def swap() -> None:
        (upper / "d/x").unlink()
        (upper / "d").rmdir()
        (upper / "d").symlink_to(outside)

    with pytest.raises(NotADirectoryError):
        changes_of(cast("Client", SwappingClient(swap)), str(root), str(upper), Start(1, 0))
