"""Files that an editor holds unsaved, through the real socket: what merges, what is refused, when it ends."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET

from editd.engine.unsaved import BYTES_MAX, DOCUMENTS_MAX
from editd.values.content import version_of
from editd.wire import messages
from editd_client.errors import EditdError, Unsaved
from support.crash_checks import wait_until
from support.reviewers import reviewer_of, set_pin
from support.shared_daemon import renewed
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from editd_client.client import Client
    from support.workplace import Workplace

LINES = [f"line {number}\n" for number in range(1, 31)]
TEXT = "".join(LINES)


def edited(*numbers: int, by: str = "typed", text: str = TEXT) -> str:
    """Return the text with these lines changed."""
    lines = text.splitlines(keepends=True)
    for number in numbers:
        lines[number - 1] = f"{by} {number}\n"
    return "".join(lines)


FILES = {"a.txt": TEXT, "b.txt": TEXT, "src/c.txt": TEXT}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("documents") / "place") as made:
        set_pin(made)
        made.start().close()
        yield made
        made.stop()


@pytest.fixture
def place(shared: Workplace) -> Workplace:
    return renewed(shared, FILES)


@pytest.fixture
def agent(place: Workplace) -> Iterator[Client]:
    with place.client() as made:
        wait_until(lambda: made.status().documents == 0, "the holds of another test do not end")
        made.session_open("agent")
        yield made


@pytest.fixture
def editor(place: Workplace) -> Iterator[Client]:
    with place.client() as made:
        made.hello("vscode")
        yield made


def refused(attempt: Callable[[], object]) -> EditdError:
    with pytest.raises(EditdError) as found:
        attempt()
    return found.value


def held(editor: Client, *numbers: int, path: str = "a.txt") -> messages.DocumentHoldResult:
    """Hold a file with these lines changed."""
    return editor.document_hold(
        path, editor.read(path).version, edited(*numbers, text=editor.read(path).content)
    )


def test_an_edit_of_other_lines_goes_on_and_the_hold_stays(
    place: Workplace, agent: Client, editor: Client
) -> None:
    version = held(editor, 12).version
    made = agent.apply([replace("a.txt", "line 3\n", "agent 3\n")])
    assert made.transaction is not None
    (file,) = made.files
    assert file.unsaved == "merged"
    assert (place.root / "a.txt").read_text() == edited(3, by="agent")
    (document,) = agent.document_list().documents
    assert (document.path, document.client, document.session) == ("a.txt", "vscode", None)
    assert document.version == version
    assert agent.status().documents == 1
    assert agent.apply([replace("b.txt", "line 3\n", "agent 3\n")]).files[0].unsaved is UNSET


def test_an_edit_of_the_same_lines_is_refused_however_it_is_sent(
    place: Workplace, agent: Client, editor: Client
) -> None:
    first = agent.apply([write("a.txt", edited(13, by="agent"))])
    assert first.transaction is not None
    agent.undo(first.transaction.seq)
    before = (place.root / "a.txt").read_text()
    held(editor, 12, 13, 20)
    with place.client() as nobody:
        changeset = nobody.begin().changeset
        nobody.stage(changeset, [replace("a.txt", "line 13\n", "x\n")])
        attempts: list[Callable[[], object]] = [
            lambda: agent.apply([replace("a.txt", "line 13\n", "x\n")]),
            lambda: agent.apply([replace("a.txt", "line 13\n", "x\n")], dry_run=True),
            lambda: agent.apply([messages.Delete(path="a.txt")]),
            lambda: agent.apply([messages.Move(path="a.txt", to="moved.txt")]),
            lambda: nobody.commit(changeset),
            agent.redo,
            lambda: agent.restore(first.transaction.seq if first.transaction else 0),
            lambda: agent.undo(agent.status().head),
        ]
        for attempt in attempts:
            error = refused(attempt)
            assert error.name == "unsaved"
            assert error.data["path"] == "a.txt"
            (by,) = error.data["held_by"]
            assert (by["client"], by["session"]) == ("vscode", None)
    error = refused(attempts[0])
    assert error.data["lines"] == [{"start_line": 13, "end_line": 13}]
    assert "unsaved changes in vscode, in line 13," in error.message
    assert (place.root / "a.txt").read_text() == before


def test_a_refused_rollback_names_each_file(place: Workplace, agent: Client, editor: Client) -> None:
    agent.apply([replace(path, "line 13\n", "agent 13\n") for path in ("a.txt", "b.txt")])
    for path in ("a.txt", "b.txt"):
        held(editor, 13, path=path)
    error = refused(lambda: agent.rollback("agent"))
    assert error.name == "unsaved"
    assert [file["path"] for file in error.data["files"]] == ["a.txt", "b.txt"]
    assert agent.rollback("agent", on_unsaved="ignore").transaction is not None
    assert (place.root / "b.txt").read_text() == TEXT


def test_each_file_and_each_document_is_compared_also_behind_one_that_is_not(
    place: Workplace, agent: Client, editor: Client
) -> None:
    with place.client() as other:
        other.hello("emacs")
        other.document_hold("b.txt", other.read("b.txt").version)  # its text is not known
        held(editor, 13, path="b.txt")
        for edits in (
            [replace("b.txt", "line 13\n", "agent 13\n")],
            [replace(path, "line 13\n", "agent 13\n") for path in ("a.txt", "b.txt")],
        ):
            error = refused(partial(agent.apply, edits))
            assert (error.name, error.data["path"]) == ("unsaved", "b.txt")
            assert [by["client"] for by in error.data["held_by"]] == ["vscode"]
    assert place.files() == {path: text.encode() for path, text in FILES.items()}


def test_reject_refuses_any_edit_and_ignore_none(agent: Client, editor: Client) -> None:
    held(editor, 12)
    elsewhere = [replace("a.txt", "line 3\n", "agent 3\n")]
    error = refused(lambda: agent.apply(elsewhere, on_unsaved="reject"))
    assert (error.name, error.data["lines"]) == ("unsaved", [])
    assert agent.apply([replace("a.txt", "line 12\n", "x\n")], on_unsaved="ignore").transaction is not None


def test_a_proposal_is_tried_when_it_lands(place: Workplace, agent: Client, editor: Client) -> None:
    held(editor, 12)
    proposed = agent.apply([replace("a.txt", "line 12\n", "agent 12\n")], propose=True)
    assert isinstance(proposed.proposal, messages.ProposedResult)
    number, view = proposed.proposal.proposal, proposed.proposal.view
    assert number is not None
    with reviewer_of(place) as reviewer:
        assert refused(lambda: reviewer.proposal_approve(number, view=view)).name == "unsaved"
        editor.document_release("a.txt")
        assert reviewer.proposal_approve(number, view=view).transaction is not None


def test_the_editors_own_edits_are_not_tried_and_its_save_ends_the_hold(
    place: Workplace, agent: Client, editor: Client
) -> None:
    held(editor, 12)
    editor.apply([replace("a.txt", "line 12\n", "its own\n")])
    assert len(agent.document_list().documents) == 1
    text = edited(12, 13)
    editor.document_hold("a.txt", editor.read("a.txt").version, text)
    editor.apply([write("a.txt", text)])
    assert agent.document_list().documents == []
    assert (place.root / "a.txt").read_text() == text


def test_it_ends_with_the_connection(place: Workplace, agent: Client, editor: Client) -> None:
    held(editor, 12)
    with place.client() as another:
        another.hello("emacs")
        held(another, 13)
        assert len(agent.document_list().documents) == 2
    wait_until(lambda: len(agent.document_list().documents) == 1, "the hold of a closed connection")
    editor.close()
    wait_until(lambda: agent.status().documents == 0, "the other one")
    assert agent.apply([replace("a.txt", "line 12\n", "x\n")]).transaction is not None


def test_an_edit_is_tried_on_each_of_several_editors(place: Workplace, agent: Client, editor: Client) -> None:
    held(editor, 12)
    with place.client() as another:
        another.hello("emacs")
        held(another, 20)
        assert agent.apply([replace("a.txt", "line 3\n", "agent 3\n")]).transaction is not None
        for line, client in ((12, "vscode"), (20, "emacs")):
            error = refused(lambda line=line: agent.apply([replace("a.txt", f"line {line}\n", "x\n")]))  # type: ignore[misc]
            assert [one["client"] for one in error.data["held_by"]] == [client]
        both = refused(lambda: agent.apply([write("a.txt", edited(12, 20, by="x"), force=True)]))
        assert [one["client"] for one in both.data["held_by"]] == ["vscode", "emacs"]
        assert "vscode and emacs" in both.message


def test_without_its_text_an_edit_goes_on_with_a_warning(agent: Client, editor: Client) -> None:
    assert editor.document_hold("a.txt", editor.read("a.txt").version).version is None
    made = agent.apply([replace("a.txt", "line 12\n", "x\n")])
    assert made.transaction is not None
    assert any("unsaved changes in vscode" in warning for warning in made.warnings)


def test_a_collision_that_was_there_before_the_edit_does_not_count(
    place: Workplace, agent: Client, editor: Client
) -> None:
    held(editor, 12)
    (place.root / "a.txt").write_text(edited(12, by="shell"))
    agent.settle()
    assert agent.apply([replace("a.txt", "line 3\n", "agent 3\n")]).transaction is not None
    editor.document_hold("a.txt", editor.document_list().documents[0].base, edited(12, 20))
    error = refused(lambda: agent.apply([replace("a.txt", "line 20\n", "x\n")]))
    assert error.data["lines"] == [{"start_line": 20, "end_line": 20}]


def test_a_read_tells_who_holds_the_file_and_shows_the_text_on_request(agent: Client, editor: Client) -> None:
    assert agent.read("a.txt").unsaved is UNSET
    version = held(editor, 12).version
    shown = agent.read("a.txt")
    assert shown.content == TEXT
    assert isinstance(shown.unsaved, list)
    assert [(one.client, one.version) for one in shown.unsaved] == [("vscode", version)]
    assert shown.unsaved[0].lines == [messages.LineRange(start_line=12, end_line=12)]
    assert editor.read("a.txt").unsaved is UNSET
    text = agent.read("a.txt", unsaved=True)
    assert (text.content, text.version) == (edited(12), version)
    assert isinstance(text.unsaved_of, messages.HeldBy)
    assert text.unsaved_of.client == "vscode"
    assert agent.read("b.txt", unsaved=True).unsaved_of is UNSET
    assert refused(lambda: agent.read("a.txt", unsaved=True, at=1)).name == "invalid_params"


def test_of_several_unsaved_texts_the_newest_is_read(place: Workplace, agent: Client, editor: Client) -> None:
    with place.client() as another:
        another.hello("emacs")
        for client, name, line in ((editor, "vscode", 12), (another, "emacs", 20), (editor, "vscode", 25)):
            version = held(client, line).version
            text = agent.read("a.txt", unsaved=True)
            assert (text.content, text.version) == (edited(line), version)
            assert isinstance(text.unsaved_of, messages.HeldBy)
            assert (text.unsaved_of.client, text.unsaved_of.version) == (name, version)


def test_a_reading_tool_tells_the_model_of_unsaved_lines(
    place: Workplace, agent: Client, editor: Client
) -> None:
    path = f"{place.root}/a.txt"
    calls = [
        messages.Tool(
            dialect="claude", tool="str_replace_based_edit_tool", args={"command": "view", "path": path}
        ),
        messages.Tool(dialect="wcgw", tool="ReadFiles", args={"file_paths": [path]}),
    ]
    note = "There are unsaved changes in vscode (lines 12-13, 20); this is the file."
    assert note not in str(agent.apply(calls).answers)
    held(editor, 12, 13, 20)
    answers = agent.apply(calls).answers
    assert isinstance(answers, list)
    assert [str(answer).splitlines()[-1] for answer in answers] == [note, note]
    assert note not in str(editor.apply(calls).answers), "its own"


def test_an_edit_of_the_held_text_is_carried_onto_the_file(
    place: Workplace, agent: Client, editor: Client
) -> None:
    held(editor, 12)
    text = agent.read("a.txt", unsaved=True)
    made = agent.apply(
        [messages.Write(path="a.txt", base=text.version, content=edited(20, by="agent", text=text.content))]
    )
    assert made.transaction is not None
    assert made.merged == ["a.txt"]
    assert (place.root / "a.txt").read_text() == edited(20, by="agent")
    error = refused(
        lambda: agent.apply([messages.Replace(path="a.txt", base=text.version, old="typed 12\n", new="x\n")])
    )
    assert error.name == "unsaved"
    editor.document_release("a.txt")
    assert (
        refused(
            lambda: agent.apply(
                [messages.Replace(path="a.txt", base=text.version, old="line 5\n", new="x\n")]
            )
        ).name
        == "stale"
    )


def test_a_merge_for_the_holder_joins_adjacent_lines_as_the_trial_does(agent: Client, editor: Client) -> None:
    base, text = editor.read("a.txt").version, edited(12)
    agent.apply([replace("a.txt", "line 13\n", "agent 13\n")])
    edit = messages.Write(path="a.txt", base=base, content=text)
    error = refused(lambda: editor.apply([edit], on_stale="merge", dry_run=True))
    assert error.name == "conflict"
    editor.document_hold("a.txt", base, text)
    merged = editor.apply([edit], on_stale="merge", dry_run=True, return_content=True)
    assert merged.files[0].content == text.replace("line 13\n", "agent 13\n")


def test_events_tell_of_the_first_hold_and_of_the_end(agent: Client, editor: Client) -> None:
    events = agent.events(events=["document"])
    held(editor, 12)
    held(editor, 13)
    editor.document_release("a.txt")
    seen = [next(events) for _ in range(2)]
    assert [(one.data["what"], one.data["path"], one.data["client"]) for one in seen] == [
        ("held", "a.txt", "vscode"),
        ("released", "a.txt", "vscode"),
    ]
    assert refused(lambda: editor.document_release("a.txt")).name == "invalid_params"


def test_a_new_file_and_a_path_through_a_link(place: Workplace, agent: Client, editor: Client) -> None:
    editor.document_hold("new.txt", None, "typed\n")
    assert refused(lambda: agent.apply([write("new.txt", "another\n")])).name == "unsaved"
    (place.root / "link.txt").symlink_to("a.txt")
    agent.settle()
    editor.document_hold("link.txt", editor.read("a.txt").version, edited(12))
    assert {one.path for one in agent.document_list().documents} == {"a.txt", "new.txt"}
    assert refused(lambda: agent.apply([replace("a.txt", "line 12\n", "x\n")])).name == "unsaved"
    assert refused(lambda: editor.document_hold("../x", None, "")).name == "path_outside"


def test_a_session_holds_no_file_outside_its_scope(agent: Client, editor: Client) -> None:
    """The attack: by a held text, an agent has all edits refused of a file that it may not write."""
    agent.session_open("bound", scope=messages.Scope(write=["src/**"]))
    refusal = refused(lambda: agent.document_hold("a.txt", None, "mine\n"))
    assert (refusal.name, refusal.data["write"]) == ("permission_denied", ["src/**"])
    assert agent.document_list().documents == []
    agent.document_hold("src/new.txt", None, "mine\n")
    assert editor.apply([replace("a.txt", "line 12\n", "x\n")]).transaction is not None


def test_limits(agent: Client, editor: Client) -> None:
    for number in range(DOCUMENTS_MAX):
        editor.document_hold(f"n{number}", None, "")
    assert refused(lambda: editor.document_hold("one more", None, "")).name == "overloaded"
    editor.document_hold("n0", None, "again")
    for number in range(BYTES_MAX // (8 << 20)):
        editor.document_hold(f"n{number}", None, "x" * (8 << 20))
    assert refused(lambda: editor.document_hold("n999", None, "x")).name == "too_large"
    editor.document_hold("n1", None, "")
    editor.document_hold("n999", None, "x")
    assert agent.status().documents == DOCUMENTS_MAX


def test_nothing_of_it_is_written_anywhere(tmp_path: Path) -> None:
    secret = "the secret that nobody saved"
    with workplace(tmp_path / "place", FILES) as place:
        with place.start() as agent, place.client() as editor:
            editor.document_hold("a.txt", editor.read("a.txt").version, TEXT + secret + "\n")
            agent.apply([replace("a.txt", "line 3\n", "agent 3\n")])
            place.stop()
        check_absent(place, secret)


def check_absent(place: Workplace, secret: str) -> None:
    for file in [*place.folder.rglob("*")]:
        if file.is_file() and not file.is_symlink():
            assert secret.encode() not in file.read_bytes(), file
    assert not re.search(secret, place.log())


def test_an_edit_is_refused_while_its_line_is_held_and_lands_after_the_release(
    place: Workplace, agent: Client, editor: Client
) -> None:
    landed: list[Any] = []
    for number in range(1, 31):
        base = editor.read("a.txt")
        changed = base.content.replace(f"line {number}\n", f"typed {number}\n")
        held_later = editor.document_hold("a.txt", base.version, changed)
        assert held_later.version is not None
        error = refused(lambda number=number: agent.apply([replace("a.txt", f"line {number}\n", "x\n")]))  # type: ignore[misc]
        assert error.name == "unsaved"
        editor.document_release("a.txt")
        landed.append(agent.apply([replace("a.txt", f"line {number}\n", f"agent {number}\n")]).transaction)
    assert all(landed)
    assert (place.root / "a.txt").read_text() == edited(*range(1, 31), by="agent")


def test_a_hold_that_races_an_edit_is_before_it_or_after_it(
    place: Workplace, agent: Client, editor: Client
) -> None:
    """Either the edit is refused and changes nothing, or it took effect before the hold."""
    begin = threading.Barrier(2)
    for number in range(1, 31):
        base = editor.read("a.txt")
        changed = base.content.replace(f"line {number}\n", f"typed {number}\n")

        def hold(base: messages.ReadResult = base, changed: str = changed) -> None:
            begin.wait()
            editor.document_hold("a.txt", base.version, changed)

        thread = threading.Thread(target=hold)
        thread.start()
        begin.wait()
        try:
            agent.apply([replace("a.txt", f"line {number}\n", f"agent {number}\n")])
            has_landed = True
        except Unsaved:
            has_landed = False
        thread.join()
        line = f"agent {number}\n" if has_landed else f"line {number}\n"
        assert (place.root / "a.txt").read_text() == base.content.replace(f"line {number}\n", line)
        assert [one.version for one in agent.document_list().documents] == [version_of(changed.encode())]
        editor.document_release("a.txt")


@dataclass
class EditorModel:
    """An editor as the random test expects it: its connection, and the text that it holds unsaved."""

    client: Client
    name: str
    base: list[str] = field(default_factory=list)
    text: list[str] | None = None  # None: it holds nothing

    def unsaved(self) -> set[int]:
        assert self.text is not None
        return {number for number, line in enumerate(self.text) if line != self.base[number]}

    def collisions(self, content: list[str]) -> set[int]:
        """Return the unsaved lines that `content` changes too. No two changes are the same."""
        if self.text is None:
            return set()
        return {number for number in self.unsaved() if content[number] != self.base[number]}

    def hold(self) -> None:
        assert self.text is not None
        held = self.client.document_hold("a.txt", version_of("".join(self.base).encode()), "".join(self.text))
        assert held.version == version_of("".join(self.text).encode())

    def take_in(self, content: list[str]) -> None:
        """Merge the file into the text, as an editor does after a transaction."""
        assert self.text is not None
        unsaved = self.unsaved()
        self.text = [self.text[n] if n in unsaved else line for n, line in enumerate(content)]
        self.base = list(content)
        self.hold()


@pytest.mark.parametrize("seed", range(2))
def test_random_holds_and_edits_are_as_the_model_says(place: Workplace, agent: Client, seed: int) -> None:
    random, content, serial = Random(seed), list(LINES), count(1)
    with ExitStack() as stack:
        editors = [
            EditorModel(stack.enter_context(place.client()), name) for name in ("nvim", "emacs", "code")
        ]
        for editor in editors:
            editor.client.hello(editor.name)
        for _ in range(150):
            editor, number = random.choice(editors), random.randrange(8)
            new = list(content)
            new[number] = f"{next(serial)}\n"
            step = random.choice(["type", "type", "edit", "edit", "take in", "release", "save", "leave"])
            if step == "type":
                if editor.text is None:
                    editor.base, editor.text = list(content), list(content)
                editor.text[number] = f"{editor.name} {next(serial)}\n"
                editor.hold()
            elif step == "edit":
                on_unsaved: messages.OnUnsaved = random.choice(["merge", "merge", "reject"])
                holders = [one for one in editors if one.text is not None]
                colliding = [one for one in holders if one.collisions(new) - one.collisions(content)]
                blocking = holders if on_unsaved == "reject" else colliding
                edit = write("a.txt", "".join(new), force=True)
                if blocking:
                    error = refused(lambda e=edit, o=on_unsaved: agent.apply([e], on_unsaved=o))  # type: ignore[misc]
                    assert error.name == "unsaved"
                    assert {by["client"] for by in error.data["held_by"]} == {one.name for one in blocking}
                    if on_unsaved == "merge":
                        assert error.data["lines"] == [{"start_line": number + 1, "end_line": number + 1}]
                else:
                    (file,) = agent.apply([edit], on_unsaved=on_unsaved).files
                    assert file.unsaved == ("merged" if holders else UNSET)
                    content = new
            elif editor.text is not None:
                if step == "take in":
                    editor.take_in(content)
                elif step == "save":
                    editor.text[number] = f"{editor.name} {next(serial)}\n"
                    editor.take_in(content)
                    editor.client.apply(
                        [write("a.txt", "".join(editor.text), force=True)], on_unsaved="ignore"
                    )
                    content, editor.text = editor.text, None
                    for one in editors:  # the user of another editor drops what the save has changed as well
                        if one.text is not None:
                            one.text = [
                                one.base[n] if n in one.collisions(content) else line
                                for n, line in enumerate(one.text)
                            ]
                            one.take_in(content)
                elif step == "release":
                    editor.client.document_release("a.txt")
                    editor.text = None
                else:
                    editor.client.close()
                    editor.client = stack.enter_context(place.client())
                    editor.client.hello(editor.name)
                    editor.text = None
                    holding = sum(one.text is not None for one in editors)
                    wait_until(lambda n=holding: agent.status().documents == n, "the end of its hold")  # type: ignore[misc]
            assert (place.root / "a.txt").read_text() == "".join(content)
            expected = {
                (one.name, version_of("".join(one.base).encode()), version_of("".join(one.text).encode()))
                for one in editors
                if one.text is not None
            }
            documents = agent.document_list().documents
            assert {(one.client, one.base, one.version) for one in documents} == expected
