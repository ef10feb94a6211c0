"""The formats on the disk and in a log: packs, deltas, journal frames and records, messages, entries."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from contextlib import suppress
from hashlib import sha1
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import msgpack
import msgspec

from editd.errors import HistoryDamaged
from editd.remote import entries, entry_decoder, log_chain
from editd.remote.entry_decoder import Unusable
from editd.remote.log_chain import FileChecks, Forked
from editd.remote.log_objects import LogObjects
from editd.remote.transport import Offline
from editd.store import (
    acknowledged,
    git_objects,
    journal,
    journal_record,
    pack_writer,
    packfile,
    relaxed,
    transaction_record,
)
from editd.store.git_objects import EMPTY_TREE, KINDS, GitTree, Trees, object_id
from editd.store.journal import Journal, JournalPosition
from editd.store.journal_record import Aborted, Committed
from editd.values.content import SYMLINK, Change, Entry, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Approval, Arrival, Attribution, Authorship, CommitId, Part, Seq
from fuzz.fuzzer import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = b"".join(b"line %d\n" % number for number in range(60))
LATER = TEXT.replace(b"line 30\n", b"another line\n")
BOMB = zlib.compress(bytes(4 << 20), 9)  # 4 KB, for an entry that announces little
FIRST_ID = object_id("blob", TEXT)
TIME_US = 1_790_000_000_123_456


def packed(value: Any) -> bytes:
    """Return a value as MessagePack, whatever is in it."""
    return cast("bytes", msgpack.packb(value, default=str, unicode_errors="surrogatepass"))


def packed_or_raw(value: Any) -> bytes:
    """Return bytes as they are, and any other value as MessagePack."""
    return value if isinstance(value, bytes) else packed(value)


def unpacked(data: bytes) -> Any:
    """Return a value of MessagePack, or None if there is none."""
    try:
        return msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogateescape")
    except (ValueError, TypeError, RecursionError):
        return None


FOLDER = tempfile.TemporaryDirectory()


def scratch(**files: bytes) -> dict[str, str]:
    """Make these the only files of the scratch folder, and return their paths."""
    for name in os.listdir(FOLDER.name):
        os.unlink(os.path.join(FOLDER.name, name))
    paths = {name: os.path.join(FOLDER.name, name) for name in files}
    for name, path in paths.items():
        with open(path, "wb") as file:
            file.write(files[name])
    return paths


# ── Packs and deltas ──────────────────────────────────────────────────────────────────────────


def _whole(value: Any, otherwise: int) -> int:
    return value & 0x3FFFF if isinstance(value, int) else otherwise


def _raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def pack_of(value: Any) -> bytes:
    """Return the pack with these entries: kind, size (None: the true one), base and content of each.

    A base is the number of the entry before, counted back, or the name of an object.
    """
    body, starts = bytearray(), list[int]()
    listed = value if isinstance(value, list) else []
    for entry in listed:
        kind, size, base, content = (
            [*entry, *[None] * 4][:4] if isinstance(entry, list) else (3, None, 0, b"")
        )
        raw = _raw(content)
        starts.append(len(body) + 12)
        kind = _whole(kind, 3) % 8
        announced = _whole(size, len(raw))
        body += pack_writer._entry_header(kind, announced)
        if kind == 7:
            body += _raw(base)[:20]
        elif kind == 6:
            back = _whole(base, 1)
            distance = starts[-1] - starts[-1 - back] if 0 < back < len(starts) else back
            body += pack_writer._back_by(distance)
        is_bomb = isinstance(size, int) and size % 2 == 0
        body += BOMB if is_bomb else zlib.compress(raw, 1)
    head = struct.pack(">4sII", b"PACK", 2, len(listed))
    return with_trailer(head + bytes(body) + bytes(20))


def with_trailer(data: bytes) -> bytes:
    """Return the data with the right checksum at its end."""
    return data[:-20] + sha1(data[:-20]).digest()


def read_pack(data: bytes) -> None:
    """Read all objects of a pack in every way that a repair has."""
    path = scratch(**{"a.pack": data})["a.pack"]
    packfile.verify_pack(path)
    pack = packfile.Pack(path)
    try:
        for oid in pack:
            kind, content = pack.read(oid)
            assert object_id(kind, content) == oid, "another object"
        pack._kept.clear()
        with patch.object(packfile, "_KEPT_BYTES_MAX", 1000):  # as with many large objects
            for oid in pack:
                pack.read(oid)
        pack.index()
        pack._kept.clear()
        with open(path, "r+b") as file:  # the disk has lost a sector of it meanwhile
            file.seek(len(data) // 3)
            file.write(bytes(len(data) // 3))
        for oid in pack:
            with suppress(KeyError):
                pack.read(oid)
    finally:
        pack.close()


DELTA = pack_writer.delta_between(TEXT, LATER)
PACKS: list[Any] = [
    [[3, None, None, TEXT], [6, None, 1, DELTA], [2, None, None, b"100644 a\0" + FIRST_ID]],
    [[7, None, FIRST_ID, DELTA], [3, None, None, TEXT]],
    [[1, None, None, b"tree " + b"0" * 40 + b"\n\nx\n"], [3, None, None, b""], [3, None, None, b"a" * 3000]],
    [[7, None, object_id("blob", LATER), pack_writer.delta_between(LATER, TEXT + b"end\n")],
     [6, None, 1, DELTA], [7, None, FIRST_ID, DELTA], [3, None, None, TEXT]],
]  # fmt: skip


NEARLY_PACKS = [[[3, 10, None, b"a bomb"]], [[6, 10, 1, b"a bomb"], *PACKS[1]], [[0, None, None, b""]]]


def index_of(value: Any) -> bytes:
    listed = value if isinstance(value, list) else []
    numbered = {
        _raw(name)[:20].ljust(20, b"\0"): (at & 0xFFFFFFFFFF if isinstance(at, int) else 12, 1)
        for name, at in map(_pair, listed)
    }
    return pack_writer.index_of(numbered, bytes(20))


def _pair(value: Any) -> tuple[Any, Any]:
    return (value[0], value[1]) if isinstance(value, list) and len(value) > 1 else (value, 12)


def read_index(data: bytes) -> None:
    files = scratch(**{"a.idx": data, "a.pack": bytes(12) + data[-40:-20]})
    packfile.verify_index(files["a.idx"], files["a.pack"] if len(data) % 3 else FOLDER.name)
    packfile.offsets_in(files["a.idx"])


def apply_delta(data: bytes) -> None:
    size = data[0] if data else 0
    base = TEXT[:size] if size else TEXT * 200
    content = packfile.apply_delta(base, data[1:])
    assert content is None or isinstance(content, bytes)


def _delta(base: bytes, content: bytes, size: int) -> bytes:
    return bytes([size]) + pack_writer.delta_between(base, content)


DELTAS = [
    _delta(TEXT[:200], TEXT[:100] + b"x" * 300, 200), _delta(TEXT * 200, LATER * 200, 0), _delta(b"", b"", 0),
]  # fmt: skip

NEARLY_DELTAS = [DELTAS[0][:5] + b"\0", DELTAS[1][:7] + b"\x80" * 2000, b"\0\xff", b""]

# ── The journal ───────────────────────────────────────────────────────────────────────────────

CHANGED = Change(
    WorkspacePath("a/b.txt"), Entry(0o100644, version_of(TEXT)), Entry(0o100644, version_of(LATER), 0o600),
    WorkspacePath("é.txt"),
)  # fmt: skip
AUTHORSHIP = Authorship(
    "me <m@x>", "s 1", "Say it\n\nwith more", "r1", Approval(7, 2, (1, 3), "ada", "s2", None, is_modified=True),
    Attribution(is_by_path=True, candidates=("a", "b\n")), Arrival(5, "host", CommitId("ab" * 20), TIME_US),
)  # fmt: skip
PARTS = (Part(Seq(2), WorkspacePath("a b"), (1, 2)), Part(Seq(2), WorkspacePath("c"), ()))


def _record(seq: int) -> Committed:
    return Committed(
        seq, bytes(20), "edit", "me", "s1", "say", "r1", TIME_US, (1, 2),
        (journal_record.change_record(CHANGED, TEXT, LATER),), b"{}", "t", b"boot", 0,
        *journal_record.part_records(PARTS), journal_record.approval_record(AUTHORSHIP.approval),
        journal_record.attribution_record(AUTHORSHIP.attribution), (3,), AUTHORSHIP.arrival,
    )  # fmt: skip


def _journal() -> dict[str, bytes]:
    """Return the files of a journal of two segments, without the zeros at the ends."""
    with tempfile.TemporaryDirectory() as folder:
        first = Journal(folder)
        first.append([_record(1), _record(2)])
        first.append([_record(3)])
        first.append([Aborted(3)])
        first.begin_segment(2, bytes(20))
        first.append([_record(3)])
        first.close()
        contents = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                contents[name] = file.read()
    return {
        name: content.rstrip(b"\0") if name.endswith(".segment") else content
        for name, content in contents.items()
    }


JOURNAL = _journal()
RELAXED_JOURNAL = {**JOURNAL, "relaxed": b"1\n"}
NAMES = frozenset(RELAXED_JOURNAL)


def _damaged() -> Iterator[dict[str, bytes]]:
    """Yield journals with a file that is missing, cut off, or has a wrong byte."""
    for journal_ in (JOURNAL, RELAXED_JOURNAL):
        for name, content in journal_.items():
            yield {other: journal_[other] for other in journal_ if other != name}
            for size in (0, 10, 100, len(content) - 70):
                yield {**journal_, name: content[: max(0, size)]}
            for at in (0, 20, 40, 100, len(content) - 1):
                yield {**journal_, name: content[:at] + b"?" + content[at + 1 :]}
    first = min(NAMES - {"acknowledged"})
    alone = JOURNAL[first][:32] + bytes(32) + JOURNAL[first][64:]  # without the end of the one before
    for content in (alone, alone[:100] + b"?" + alone[101:], alone[:-70], alone[:8] + b"\2" + alone[9:]):
        yield {first: content}
        yield {first: _sealed(content)}
    yield {name: _sealed(content.replace(b"\xa2me", b"\xa2\x81\x81")) for name, content in JOURNAL.items()}


def read_journal(data: bytes) -> None:
    """Read the files of a journal in every way that a start and a repair have."""
    value = unpacked(data)
    files = value if isinstance(value, dict) else {min(NAMES): data}
    whole = {name: _raw(content) for name, content in files.items() if name in NAMES}
    scratch(**whole)
    for content in whole.values():
        list(journal.left_frames(content))
    journal.whole_records(FOLDER.name)
    read = list(journal.frames(FOLDER.name, JournalPosition(0, 0)))
    list(journal.frames(FOLDER.name, JournalPosition(2, 64)))
    journal.select_committed(read)
    mark = acknowledged.read_acknowledged(FOLDER.name)
    if mark is not None:
        journal.acknowledged_seq(mark, read)
        start, end = JournalPosition(0, 0), JournalPosition(mark.segment, mark.offset)
        list(journal.frames(FOLDER.name, start, end))


def sealed_journal(data: bytes) -> bytes:
    """Return the journal with the right checksums of all headers, frames and marks."""
    value = unpacked(data)
    if not isinstance(value, dict):
        return data
    return packed(
        {name: _sealed(content) if isinstance(content, bytes) else content for name, content in value.items()}
    )


def _sealed(content: bytes) -> bytes:
    raw = bytearray(content)
    if content[:8] == b"editd-a\n" and len(raw) > 4:
        raw[-4:] = zlib.crc32(raw[:-4]).to_bytes(4, "little")
    if content[:8] == b"editd-j\n" and len(raw) >= 64:
        raw[20:24] = zlib.crc32(raw[:20]).to_bytes(4, "little")
        raw[52:56] = zlib.crc32(raw[32:52]).to_bytes(4, "little")
    at = raw.find(b"fRm1")
    while 0 <= at <= len(raw) - 32:
        length = int.from_bytes(raw[at + 16 : at + 24], "little")
        raw[at + 24 : at + 28] = zlib.crc32(raw[at + 32 : at + 32 + length]).to_bytes(4, "little")
        raw[at + 28 : at + 32] = zlib.crc32(raw[at : at + 28]).to_bytes(4, "little")
        at = raw.find(b"fRm1", at + 4)
    return bytes(raw)


RECORDS: list[Any] = [
    unpacked(journal_record.ENCODER.encode((_record(1), Aborted(1)))),
    unpacked(
        journal_record.ENCODER.encode(
            (msgspec.structs.replace(_record(1), changes=(journal_record.ChangeRecord(b"a", None, None),)),)
        )
    ),
]


def read_records(data: bytes) -> None:
    for record in journal_record.DECODER.decode(data):
        if isinstance(record, Committed):
            journal_record.transaction_of(record)
        else:
            assert isinstance(record, Aborted)


# ── Commits ───────────────────────────────────────────────────────────────────────────────────


def _messages() -> Iterator[bytes]:
    for authorship in (AUTHORSHIP, Authorship("me"), msgspec.structs.replace(AUTHORSHIP, approval=Approval(
        None, None, (), None, None, "rule", is_modified=False))):  # fmt: skip
        yield transaction_record.compose(
            9, "edit", authorship, TIME_US, [CHANGED], [2, 4], '{"a": 1}', PARTS, [3]
        ).encode("utf-8", "surrogateescape")
    odd = Authorship("me", message="a\0b\n\nSeq: 3", arrival=Arrival(0, "h", None, TIME_US))
    yield transaction_record.compose(0, "baseline", odd, TIME_US, [], []).encode()
    yield transaction_record.compose_first_scan(2, Authorship("me"), TIME_US).encode()


NEARLY_MESSAGES = [
    b"x\n\nSeq: 1\nKind: edit\nActor: a\nTime: 2026-01-01T00:00:00Z\n" + line
    for line in (
        b"Message: " + b"[" * 9000,
        b"Moved: " + b"[" * 9000,
        b"Message: 5",
        b"Moved: [1, 2]",
        b"Moved: {}",
        b"x",
    )
]
MESSAGE_KEYS = (
    b"Message", b"Moved", b"Undoes", b"Hunks", b"Shared", b"Proposal", b"By", b"Number", b"Made", b"Permissions",
)  # fmt: skip
MESSAGE_WORDS = (
    *(b"\n%b: " % key for key in MESSAGE_KEYS),
    b'"', b"[" * 3000, b"[1, 2]", b"{}", b"none", b"\n\n", b"\\ud800", b"0001-01-01T00:00:00+23:59", b" ",
)  # fmt: skip


def read_message(data: bytes) -> None:
    message = transaction_record.parse(data.decode("utf-8", "surrogateescape"))
    words = [message.authorship.actor, message.authorship.message, message.notes, message.kind]
    assert all(
        isinstance(word, str) for word in (*words, *(word for moved in message.moves for word in moved))
    )
    message.notes.encode("utf-8", "surrogateescape")


class GivenObjects(LogObjects):
    """The objects of a log in memory, and no others."""

    def __init__(self) -> None:
        self._new = {}
        self._for_now = {}
        self.merges = {}

    def _read(self, oid: bytes) -> tuple[Any, bytes]:
        return self._new[oid]

    def has(self, oid: bytes) -> bool:
        return oid in self._new

    def check_blob(self, oid: bytes) -> None:
        self.blob(oid)


def _log() -> list[Any]:
    """Return the objects of a log with an entry of each kind, with the queue of a host."""
    objects = GivenObjects()
    objects.put("blob", TEXT)
    objects.put("blob", LATER)
    update = Trees(EMPTY_TREE, objects.tree).update([(b"a/b.txt", CHANGED.before), (b"c", CHANGED.before)])
    entries.hold_trees(objects, update.root, update.trees)
    after = Trees(update.root, objects.tree).update([(b"a/b.txt", CHANGED.after), (b"d/e", CHANGED.after)])
    entries.hold_trees(objects, after.root, after.trees)
    base = entries.write_baseline(objects, update.root, "h", TIME_US)
    change = msgspec.structs.replace(CHANGED, source=None)
    waiting = entries.Tentative(
        CommitId("ab" * 20), "h", "edit", msgspec.structs.replace(AUTHORSHIP, arrival=None), TIME_US, (change,),
        (CommitId("cd" * 20),), (Part(Seq(1), WorkspacePath("a/b.txt"), (1,)),),
    )  # fmt: skip
    applied = entries.write_entry(objects, waiting, 1, base, after.root, is_applied=True)
    lost = msgspec.structs.replace(waiting, origin=CommitId("ef" * 20))
    aside = entries.write_entry(objects, lost, 2, applied, after.root, is_applied=False)
    settled = entries.SettledAside(lost.origin, "rejected", "h", Authorship("ada"), TIME_US)
    head = entries.write_settled(objects, settled, 3, aside, after.root)
    commits, _ = log_chain.commits_back(objects, head, ())
    assert not any(one.problem for one in log_chain.read_entries(objects, commits, None, {}, FileChecks()))
    queue = entries.write_empty_queue(objects, "h")
    entries.write_waiting(objects, waiting, entries.write_waiting(objects, waiting, queue))
    return [[oid, kind, content] for oid, (kind, content) in objects._new.items()]


LOG = _log()
LINK = object_id("blob", b"a\0b")
NEARLY_LOGS = [
    *(
        [[oid, kind, content.replace(old, new)] for oid, kind, content in LOG]
        for old, new in (
            (b"Time: 20", b"Time: 19"), (b"Kind: edit", b"Kind: odd"), (b"ef" * 20, b"ab" * 20),
            (b"100644 c\0", b"100664 c\0"), (b"Outcome: applied", b"Outcome: aside"),
            (b"100644 e\0" + object_id("blob", LATER), b"120000 e\0" + LINK), (b"100644 c\0", b"100644 .git\0"),
            (b"Permissions: 0600", b"Permissions: 7777"),
            (b"100644 e\0" + object_id("blob", LATER), b"100644 e\0" + EMPTY_TREE),
        )
    ),
]  # fmt: skip
for nearly_ in NEARLY_LOGS:
    nearly_[:0] = [[LINK, "blob", b"a\0b"], [EMPTY_TREE, "tree", b""]]

# ── The commit of an entry, alone ──


def _entry_samples() -> list[Any]:
    """Return the commits of the log as values: the parents, the author's message, and the trailers."""
    samples = []
    for _, kind, content in LOG:
        head, _, message = content.partition(b"\n\n")
        if kind == "commit" and not message.startswith(b"queue"):
            body, _, block = message.decode().rstrip("\n").rpartition("\n\n")
            samples.append(
                [head.count(b"\nparent "), body, [line.split(": ", 1) for line in block.split("\n")]]
            )
    return samples


def entry_of(value: Any) -> bytes:
    """Return the bytes of a commit with these parents, this message and these trailers."""
    parents, body, trailers = [*value, *[None] * 3][:3] if isinstance(value, list) else (1, "", [])
    lines = [b": ".join(map(_raw, pair)) for pair in trailers if isinstance(pair, list)] if isinstance(
        trailers, list) else [_raw(trailers)]  # fmt: skip
    message = _raw(body) + b"\n\n" + b"\n".join(lines) + b"\n"
    head = git_objects.commit_content(
        bytes(20), [bytes(20)] * (_whole(parents, 1) % 5), "a <a@b>", transaction_record.EDITD, TIME_US, ""
    )
    return head + message


ENTRIES = _entry_samples()
ODD_TRAILERS = (
    ("Kind", "odd"), ("Kind", "baseline"), ("Kind", "claim"), ("Actor", '""'), ("Actor", '"\\ud800"'), ("Actor", "x" * 3000),
    ("Message", "none"), ("Message", '"' + "x" * 300_000 + '"'), ("Made", "1960-01-01T00:00:00.000000Z"),
    ("Time", "2026-13-01T00:00:00.000000Z"), ("Host", "a/b"), ("Host", "h" * 300), ("Origin", "x"),
    ("Number", "99"), ("Permissions", "7777 c"), ("Permissions", "0600 ../c"), ("Shared", "../c"), ("Moved", "[1]"),
    ("Moved", '["../x", "c"]'), ("Undoes", "9 c"), ("Hunks", "1 0 a/b.txt"), ("Needs", "9"), ("Outcome", "odd"),
    ("Outcome", "decided"), ("Decision", "open"), ("Undone", "cd" * 20), ("Candidate", "é"),
)  # fmt: skip
NEARLY_ENTRIES = [
    *(
        [parents, body, [[key, odd] if key == name else [key, value] for key, value in trailers]]
        for name, odd in ODD_TRAILERS
        for parents, body, trailers in ENTRIES
    ),
    *(
        [parents, body, [*trailers, [name, odd]]]
        for name, odd in ODD_TRAILERS
        for parents, body, trailers in ENTRIES[1:2]
    ),
    *(
        [parents, body, [pair for pair in trailers if pair[0] != name]]
        for name in ("Seq", "Number", "Host", "Origin", "Outcome", "Decides")
        for parents, body, trailers in ENTRIES
    ),
    [1, "x", [[key, {"Outcome": "odd", "Needs": "9"}.get(key, value)] for key, value in ENTRIES[1][2]]],
    [1, "a\0", ENTRIES[1][2]],
    *([parents, body, [*trailers, ["no trailer"]]] for parents, body, trailers in ENTRIES),
]


def read_log(data: bytes) -> None:
    """Read each commit of a log as the head of a chain, as an entry alone, and as a queue.

    The name of a changed object changes, too, wherever an earlier object was named.
    """
    value = unpacked(data)
    objects, names = GivenObjects(), dict[bytes, bytes]()
    for listed in value if isinstance(value, list) else []:
        old, kind, content = [*listed, *[None] * 3][:3] if isinstance(listed, list) else (b"", "blob", b"")
        old, content = _raw(old)[:20], _raw(content)
        for before, now in names.items():
            if before != now and len(before) == 20:
                content = content.replace(before, now).replace(before.hex().encode(), now.hex().encode())
        known = next((number for number in KINDS if KINDS[number] == kind), 1)
        names[old] = objects.put(KINDS[known], content)
    for oid, (kind, content) in list(objects._new.items()):
        if kind == "commit":
            _read_fields(content)
            _read_chain(objects, oid)
            _read_queue(objects, oid)


def _read_fields(content: bytes) -> None:
    """Decode a commit at each place of a log, and check what a history may hold."""
    for decode in (entry_decoder.decode_waiting, *(_at(number) for number in range(4))):
        try:
            fields, reason = decode(content), ""
        except Unusable as error:
            fields, reason = None, error.reason
        assert reason.isprintable(), "a reason that cannot be shown"
        assert len(reason) <= entry_decoder.REASON_LENGTH_MAX
        if fields is not None:
            _check_fields(fields)
            if decode is not entry_decoder.decode_waiting:
                parents = {"baseline": 0, "aside": 2}.get(fields.outcome, 1)
                assert len(fields.parents) == parents, "a wrong number of parents"


def _at(number: int) -> Any:
    return lambda content: entry_decoder.decode_entry(content, number)


def _check_fields(fields: entry_decoder.EntryFields) -> None:
    """Check each field without the decoder: with what a history, a database and an answer can hold."""
    message, author, arrival = fields.message, fields.message.authorship, fields.arrival
    shown = [author.actor, author.session, author.message, author.request_id, arrival.host, arrival.origin]
    shown += [*fields.undone, fields.about, fields.decision, fields.newer, message.kind]
    if author.approval is not None:
        shown += [author.approval.actor, author.approval.session, author.approval.rule]
    if author.attribution is not None:
        shown += author.attribution.candidates
    for text in shown:
        if text is not None:
            text.encode()
            assert "\0" not in text, "a text with a NUL"
            assert len(text) <= 200_000, "a text without end"
    assert author.actor, "nobody"
    assert message.kind in ("edit", "outside", "exec", "undo", "redo", "rollback", "restore", "baseline")
    for time_us in (message.time_us, arrival.time_us):
        assert "1970" <= transaction_record.rfc3339(time_us) <= "9999-12-31T23:59:59.999999Z"
    for path in (
        *(one for moved in message.moves for one in moved),
        *(path for path, _ in message.permissions),
    ):
        WorkspacePath.parse(path)
    assert all(bits <= 0o7777 for _, bits in message.permissions), "bits that no file has"
    assert all(1 <= part.seq <= len(fields.undone) for part in message.parts), "an undo of nothing"
    assert 0 <= arrival.number < 10**15
    assert (arrival.origin is None) == (fields.outcome == "baseline")
    assert all(len(oid) == 20 for oid in (fields.tree, *fields.parents))


def _read_chain(objects: LogObjects, head: bytes) -> None:
    """Read a log as a host does: what is wrong with an entry is that entry's alone."""
    checks, landed = FileChecks(), dict[CommitId, int]()
    try:
        commits, known = log_chain.commits_back(objects, head, ())
        read = log_chain.read_entries(objects, commits, None, landed, checks)
    except (KeyError, Forked, Offline):  # git refuses a log without an object, or with one of another kind
        return
    assert known is None
    assert [entry.number for entry in read] == list(range(len(commits))), "an entry has lost its place"
    again = log_chain.read_entries(objects, commits, None, landed, checks.up_to(len(commits)))
    assert [entry.problem for entry in again] == [entry.problem for entry in read], "another verdict"
    origins = [entry.arrival.origin for entry in read if not entry.problem]
    assert len(origins) == len(set(origins)), "a transaction is twice in the log"
    for entry in read:
        if entry.problem:
            assert entry.tree == entry.tree_before, "an unusable entry changes files"
            continue
        for change in entries.changes_of(objects, entry.tree_before, entry.tree, entry.message):
            if change.after is not None:
                content = objects.blob(bytes.fromhex(change.after.version))
                assert (change.after.permissions or 0) <= 0o777, "privileges from a log"
                assert change.after.mode != SYMLINK or b"\0" not in content, "an impossible link"
        if entry.outcome == "aside":
            entries.read_aside(objects, entry)


def _read_queue(objects: LogObjects, head: bytes) -> None:
    try:
        waiting = entries.read_queue(objects, head)
    except (ValueError, KeyError):  # as the exchange does
        return
    assert not any(map(entries.flaw_of, waiting)), "this host would land what nobody can use"


TREES = [content for _, kind, content in LOG if kind == "tree"]


def read_tree(data: bytes) -> None:
    folder = GitTree.decode(data)
    for read in (folder.files, folder.folders, lambda: folder.file(b"c"), lambda: folder.folder(b"a")):
        read()
    for before in (b"1", b"2"):
        list(git_objects.tree_changes(lambda oid: data if oid == b"2" else TREES[0], before, b"2"))


PACK_READERS = r"Pack\.(__init__|__iter__|__contains__|read|index|_resolve|_object|_apply_deltas|_keep|entries|_entry|_head)|verify_pack"
STORED = (
    Format(
        "packs",
        PACKS,
        read_pack,
        (),
        {packfile: PACK_READERS},
        encode=pack_of,
        nearly=NEARLY_PACKS,
        peak_bytes_max=2 << 20,
        seal=with_trailer,
    ),
    Format(
        "deltas",
        DELTAS,
        apply_delta,
        (),
        {packfile: "apply_delta|_size|_field"},
        words=(b"\x80" * 2000, b"\xff" * 9),
        nearly=NEARLY_DELTAS,
    ),
    Format(
        "pack indexes",
        [[[FIRST_ID, 12], [b"b" * 20, 1 << 33]], []],
        read_index,
        (ValueError,),
        {packfile: "offsets_in|verify_index"},
        encode=index_of,
        seal=with_trailer,
    ),
    Format(
        "journal frames",
        [JOURNAL, RELAXED_JOURNAL],
        read_journal,
        (HistoryDamaged,),
        {
            journal: "frames|known_ends|whole_records|whole_frames|left_frames|select_committed|acknowledged_seq|_frames_of"
            "|_is_begun|_frame_at|_any_frame_after|_next_magic",
            relaxed: "last_relaxed_segment",
            acknowledged: "read_acknowledged|_parse|before_in",
        },
        encode=packed,
        seal=sealed_journal,
        nearly=list(_damaged()),
        words=(b"fRm1", b"editd-j\n", b"\0" * 64),
    ),
    Format(
        "journal records",
        RECORDS,
        read_records,
        (msgspec.MsgspecError, UnicodeDecodeError, RecursionError),
        {journal_record: "transaction_of|touch_of|entry_of|parts_of"},
        encode=packed,
    ),
    Format(
        "commit messages",
        list(_messages()),
        read_message,
        (ValueError,),
        {transaction_record: "parse|microseconds|_approval|_attribution|_arrival|_parts|_read|_parse_move"},
        nearly=NEARLY_MESSAGES,
        words=MESSAGE_WORDS,
    ),
    Format(
        "log entries",
        ENTRIES,
        _read_fields,
        (),
        {entry_decoder: r"decode_.*|_.*|Unusable\..*"},
        encode=entry_of,
        nearly=NEARLY_ENTRIES,
        words=(
            b"\n\n",
            b'"',
            b"\\u0000",
            b"\\ud800",
            b"\0",
            b"\xff",
            b"9" * 20,
            b"\nNeeds: 2",
            b"\nKind: odd",
        ),
    ),
    Format(
        "logs",
        [LOG],
        read_log,
        (),
        {
            log_chain: r"commits_back|read_entries|_check_.*|FileChecks\.up_to",
            entries: "read_entry|unusable_entry|read_queue|read_aside|_read_waiting|check_files|_check_.*|changes_of|differences",
            git_objects: r"CommitObject\.decode",
        },
        encode=packed,
        nearly=NEARLY_LOGS,
        words=(
            b"\nOutcome: ",
            b"\nDecides: ",
            b"\nUndone: ",
            b"tree ",
            b"parent ",
            b"\n\n",
            b'\nMoved: ["../x", "c"]',
            b"queue of h\n",
            b"Kind: odd\n",
        ),
    ),
    Format(
        "trees",
        TREES,
        read_tree,
        (ValueError,),
        {
            git_objects: r"GitTree\.(decode|of|file|files|folder|folders)|_entry|_parse_entries|_differing|tree_changes"
        },
        nearly=[tree.replace(b"100644", b"100664") for tree in TREES],
        words=(b"40000 x\0", b"104755 ", b"160000 ", b"0040000 "),
    ),
)
