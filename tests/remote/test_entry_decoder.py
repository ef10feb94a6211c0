"""The decoder of a log entry: what the writers write passes, and each field has its type, range and size."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from editd.remote import entries, entry_decoder
from editd.remote.entry_decoder import (
    LISTED_MAX,
    MESSAGE_LENGTH_MAX,
    NAME_LENGTH_MAX,
    EntryFields,
    Unusable,
    as_text,
    decode_entry,
    decode_waiting,
)
from editd.store.git_objects import commit_content
from editd.store.transaction_record import EDITD
from editd.values.content import Change, Entry, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import (
    Approval,
    Arrival,
    Attribution,
    Authorship,
    CommitId,
    Part,
    Seq,
    TurnMark,
)

TIME_US = 1_790_000_000_123_456
TREE, PARENT = b"\1" * 20, b"\2" * 20
VALID = """say it

Seq: 3
Kind: edit
Actor: me
Number: 3
Host: laptop
Made: 2026-09-21T13:33:20.123456Z
Origin: abababababababababababababababababababab
Time: 2026-09-21T13:33:20.123456Z
Outcome: applied
"""


def commit(message: str | bytes, parents: int = 1) -> bytes:
    content = commit_content(TREE, [PARENT] * parents, "me <m@x>", EDITD, TIME_US, "")
    return content + (message if isinstance(message, bytes) else message.encode())


def decoded(message: str, parents: int = 1) -> EntryFields:
    return decode_entry(commit(message, parents), 3)


def with_line(line: str) -> str:
    """Return the valid message with one more line, in place of those with the same key."""
    key = line.partition(":")[0] + ": "
    body, _, trailers = VALID.rpartition("\n\n")
    kept = [one for one in trailers.splitlines() if not one.startswith(key)]
    return f"{body}\n\n" + "\n".join([*kept, line]) + "\n"


def test_an_entry_of_the_first_version_passes() -> None:
    fields = decoded(VALID)
    assert fields.message.authorship.message == "say it"
    assert fields.arrival == Arrival(3, "laptop", CommitId("ab" * 20), 1_789_997_600_123_456)
    assert (fields.outcome, fields.needs, fields.newer) == ("applied", 1, "")
    assert (fields.tree, fields.parents) == (TREE, (PARENT,))


def test_all_that_this_version_writes_passes_and_names_its_version() -> None:
    change = Change(
        WorkspacePath("caf\udce9"), None, Entry(0o100755, version_of(b"x"), 0o4711), WorkspacePath("b")
    )
    author = Authorship(
        'me "x"', "s\n1", "", "r", Approval(None, None, (), "ada", "s2", "rule", is_modified=True),
        Attribution(is_by_path=False, candidates=("a", "é\t")),
    )  # fmt: skip
    waiting = entries.Tentative(
        CommitId("ab" * 20), "h", "undo", author, TIME_US, (change,), (CommitId("cd" * 20),),
        (Part(Seq(1), WorkspacePath("a b"), (1, 2)),), is_part=True,
    )  # fmt: skip
    message = entries._message(waiting, 3, "applied")
    fields = decoded(message)
    assert fields.arrival.shared == ("caf\udce9",)
    assert fields.message.permissions == (("caf\udce9", 0o711),), "privileges stay here"
    assert fields.message.parts == waiting.parts
    assert replace(fields.message.authorship, arrival=None) == author
    assert "\nNeeds: 1\n" in message
    assert entries.flaw_of(waiting) is None
    assert decode_waiting(commit(entries._message(waiting, 0, "aside"), 0)).outcome == "aside"


WRONG = [
    ("Kind: Banana", "another form"),
    ("Kind: baseline", "its kind is baseline"),
    ("Kind: claim", "its kind is claim"),
    ('Actor: "\\ud800"', "surrogate"),
    ('Actor: "a\\u0000"', "NUL"),
    ('Actor: ""', "no actor"),
    ("Actor: ", "form"),
    ('Actor: "a"b"', "cannot be read"),
    (f"Actor: {'x' * (NAME_LENGTH_MAX + 1)}", "2001 characters"),
    ('Session: "\\udc80"', "surrogate"),
    ('Request: "\\u0000"', "NUL"),
    ('Approved-By: "\\ud800"', "surrogate"),
    ('Message: "\\ud800"', "surrogate"),
    (f'Message: "{"x" * (MESSAGE_LENGTH_MAX + 1)}"', "200001 characters"),
    ("Made: 0001-01-01T00:00:00.000000+23:59", "form"),
    ("Made: 1960-01-01T00:00:00.000000Z", "before 1970"),
    ("Made: 2026-13-01T00:00:00.000000Z", "cannot be read"),
    ("Time: 9999-12-31T23:59:59.999999-23:59", "form"),
    ("Host: ", "form"),
    ("Host: a/b", "form"),
    ('Host: "\\ud800"', "form"),
    (f"Host: {'h' * 300}", "form"),
    ("Origin: banana", "form"),
    (f"Origin: {'A' * 40}", "form"),
    ("Undone: banana", "form"),
    ("Seq: -1", "form"),
    ("Seq: 99999999999999999999", "form"),
    ("Number: 4", "its place in the log is 3"),
    ("Number: 03", "form"),
    ("Permissions: 77777 new", "form"),
    ("Permissions: 8 new", "form"),
    ("Permissions: 0600 ../x", "impossible path"),
    ('Moved: ["../x", "new"]', "impossible path"),
    ("Shared: ../x", "impossible path"),
    ('Shared: "x', "form"),
    ("Moved: [1, 2]", "cannot be read"),
    (f"Moved: {'[' * 9000}]", "cannot be read"),
    ("Moved: x", "form"),
    ("Undoes: 1", "does not name"),
    ("Undoes: 0", "does not name"),
    ("Undoes: 0 new", "does not name"),
    ("Undoes: 1 ../x", "impossible path"),
    ("Hunks: 1 -5 new", "form"),
    ("Proposal: 1 1 a", "form"),
    ("By: chance", "form"),
    ("Claims: x", "form"),
    ("Needs: x", "form"),
    ("Outcome: banana", "unknown outcome"),
    ("Outcome: baseline", "no Origin"),
    ("Outcome: decided", "about nothing"),
    ("Outcome: aside", "1 parents instead of 2"),
    ("no trailer", "not a trailer"),
]


@pytest.mark.parametrize(("line", "reason"), WRONG, ids=[line[:40] for line, _ in WRONG])
def test_a_field_of_another_form_makes_an_entry_unusable(line: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason) as refused:
        decoded(with_line(line))
    assert refused.value.host == ("" if line.startswith(("Host", "no trailer")) else "laptop")
    assert refused.value.reason.isprintable()
    assert len(refused.value.reason) <= 200


@pytest.mark.parametrize(
    "key", ["Seq", "Kind", "Actor", "Time", "Number", "Host", "Made", "Outcome", "Origin"]
)
def test_a_missing_or_repeated_field_makes_an_entry_unusable(key: str) -> None:
    lines = [line for line in VALID.splitlines(keepends=True) if line.startswith(f"{key}: ")]
    with pytest.raises(Unusable, match=f"no {key}"):
        decoded(VALID.replace(lines[0], ""))
    with pytest.raises(Unusable, match=f"2 trailers {key}"):
        decoded(VALID + lines[0])


def test_sizes_and_bytes_of_a_commit_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, reason in (
        (commit(b"\xff\n\nSeq: 1\n"), "not UTF-8"), (commit("a\0\n\nSeq: 1\n"), "has a NUL"),
        (b"tree x\n", "the head of a commit"), (commit(VALID, 0), "0 parents"),
        (commit(VALID, 2), "2 parents instead of 1"),
        (commit(VALID + "Undone: {}\n".format("ab" * 20) * (LISTED_MAX + 1)), "200001 trailers Undone"),
    ):  # fmt: skip
        with pytest.raises(Unusable, match=reason):
            decode_entry(content, 3)
    monkeypatch.setattr(entry_decoder, "ENTRY_BYTES_MAX", 100)
    with pytest.raises(Unusable, match="more than 100 bytes"):
        decoded(VALID)


def test_the_first_entry_and_no_other_is_a_baseline() -> None:
    baseline = "\n".join(line for line in VALID.splitlines() if not line.startswith("Origin"))
    baseline = baseline.replace("applied", "baseline").replace(" 3", " 0").replace("edit", "baseline") + "\n"
    assert decode_entry(commit(baseline, 0), 0).outcome == "baseline"
    with pytest.raises(Unusable, match="its kind is edit, and its outcome baseline"):
        decode_entry(commit(baseline.replace("Kind: baseline", "Kind: edit"), 0), 0)
    with pytest.raises(Unusable, match="its outcome is baseline, and its number 3"):
        decode_entry(commit(baseline.replace("Number: 0", "Number: 3"), 0), 3)
    with pytest.raises(Unusable, match="its outcome is applied, and its number 0"):
        decode_entry(commit(with_line("Number: 0")), 0)


def test_hunk_0_is_none() -> None:
    undo = f"Undoes: 1 a\nHunks: 1 0 a\nUndone: {'cd' * 20}\n"
    with pytest.raises(Unusable, match="hunk 0"):
        decoded(VALID + undo)
    assert decoded(VALID + undo.replace("1 0 a", "1 2 a")).message.parts[0].hunks == (2,)


@pytest.mark.parametrize("path", ["", " new"])
@pytest.mark.parametrize("position", [0, 3, 99])
def test_an_undo_names_only_transactions_that_its_entry_lists(position: int, path: str) -> None:
    undone = "".join(f"Undone: {origin * 20}\n" for origin in ("cd", "ef"))
    with pytest.raises(Unusable, match="does not name"):
        decoded(VALID + f"Undoes: {position}{path}\n" + undone)
    for listed in (1, 2):
        assert decoded(VALID + f"Undoes: {listed}{path}\n" + undone).message.undoes == (listed,)


def test_an_unknown_kind_is_taken_as_an_edit_and_said() -> None:
    fields = decoded(with_line("Kind: squash"))
    assert (fields.message.kind, fields.newer) == ("edit", "the kind squash")


def test_what_a_newer_version_adds_is_left_out_and_said() -> None:
    newer = with_line("Outcome: merged") + "Needs: 7\nColour: blue\n"
    fields = decoded(newer, 3)
    assert (fields.outcome, fields.needs) == ("applied", 7)
    assert fields.newer == "version 7 of the log and the outcome merged"
    assert decoded(VALID + "Colour: blue\nColour: red\n").newer == ""


def test_a_decision_names_its_transaction_and_a_known_state() -> None:
    decision = with_line("Outcome: decided") + f"Decides: {'cd' * 20}\nDecision: rejected\n"
    assert (decoded(decision).about, decoded(decision).decision) == ("cd" * 20, "rejected")
    with pytest.raises(Unusable, match="unknown decision"):
        decoded(decision.replace("rejected", "open"))


def test_texts_that_no_host_could_use_are_made_printable_before_they_are_sent() -> None:
    odd = Authorship(
        "a\0", "s\udcff", "m\ud800", "r\0", Approval(None, None, (), "b\0", None, "c\0", is_modified=False),
        Attribution(is_by_path=True, candidates=("d\udc80",)),
    )  # fmt: skip
    clean = as_text(odd)
    waiting = entries.Tentative(CommitId("ab" * 20), "h", "edit", odd, TIME_US, ())
    assert entries.flaw_of(waiting) is not None
    assert entries.flaw_of(replace(waiting, authorship=clean)) is None
    assert (clean.actor, clean.message) == ("a\N{REPLACEMENT CHARACTER}", "m\N{REPLACEMENT CHARACTER}")
    assert as_text(Authorship("me")) == Authorship("me")


@pytest.mark.parametrize(
    ("trailers", "turn"),
    [
        ("Turn: 2\nModel: gpt-5.5", TurnMark(2, "gpt-5.5")),
        ("Turn: 2", TurnMark(2)),
        ("Turn: x\nModel: m", None),
        ('Turn: 2\nModel: "\\udcff"', TurnMark(2)),
        ('Turn: 2\nModel: "', TurnMark(2)),
        ("Turn: 2\nModel: " + "m" * (NAME_LENGTH_MAX + 1), TurnMark(2)),
        ("Turn: 2\nTurn: 3", TurnMark(2)),
    ],
)
def test_a_turn_that_no_host_could_use_is_left_out_as_older_hosts_do(
    trailers: str, turn: TurnMark | None
) -> None:
    assert decoded(VALID + trailers + "\n").message.authorship.turn == turn


def test_the_turn_of_an_author_is_sent_as_text() -> None:
    clean = as_text(Authorship("a", turn=TurnMark(2, "m\0")))
    assert clean.turn == TurnMark(2, "m\N{REPLACEMENT CHARACTER}")
    waiting = entries.Tentative(CommitId("ab" * 20), "h", "edit", clean, TIME_US, ())
    assert entries.flaw_of(waiting) is None


def test_work_is_judged_by_its_whole_commit_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    author = Authorship("ann", message="m" * 1000)
    waiting = entries.Tentative(CommitId("ab" * 20), "laptop", "edit", author, 7, ())
    settled = entries.SettledAside(CommitId("ab" * 20), "rejected", "laptop", author, 7)
    assert entries.flaw_of(waiting) is None
    assert entries.flaw_of(settled) is None
    assert "1970" in str(entries.flaw_of(replace(settled, time_us=-1)))
    assert "surrogate" in str(entries.flaw_of(replace(settled, authorship=Authorship("\ud800"))))
    monkeypatch.setattr(entry_decoder, "ENTRY_BYTES_MAX", 1000)
    assert "more than 1000 bytes" in str(entries.flaw_of(waiting))
    assert "more than 1000 bytes" in str(entries.flaw_of(settled))
