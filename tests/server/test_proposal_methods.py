"""Proposals through the real socket: what waits, what a reviewer sees and decides, and what lands.

One daemon serves the whole file. `test_proposal_restarts` has the tests that end it.
"""

from __future__ import annotations

import codecs
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET

from editd.wire import messages
from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.reviewers import (
    FILES,
    LINES,
    config_folder,
    proposal_of,
    propose,
    reconfigure,
    refused,
    reviewer_of,
    set_pin,
)
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, Client]]:
    """A workspace with a daemon for all tests, and a reviewer who has given the PIN."""
    with workplace(tmp_path_factory.mktemp("proposals") / "place", FILES) as place:
        set_pin(place)
        place.start().close()
        with reviewer_of(place) as ann:
            ann.settle()
            yield place, ann


@pytest.fixture
def reviewer(shared: tuple[Workplace, Client]) -> Client:
    return shared[1]


@pytest.fixture
def place(shared: tuple[Workplace, Client]) -> Iterator[Workplace]:
    """The shared workspace. Afterwards it has the first files, no session, no grant and no configuration."""
    place, ann = shared
    yield place
    if (config := config_folder(place) / "config.toml").exists():
        config.unlink()
        ann.config_reload()
    for session in ann.session_list().sessions:
        ann.session_close(session.session, force=True, withdraw=True)
    for grant in ann.review_grants().grants:
        ann.review_revoke(grant.grant)
    for waiting in ann.proposal_list().proposals:
        ann.proposal_reject(waiting.proposal)
    ann.settle()
    there = place.files()
    with place.client() as fresh:  # it has seen no version yet
        fresh.apply(
            [
                *(messages.Delete(path=path) for path in there.keys() - FILES.keys()),
                *(write(path, text) for path, text in FILES.items() if there.get(path) != text.encode()),
            ]
        )


@pytest.fixture
def person(place: Workplace) -> Iterator[Client]:
    """A connection of the reviewer's person, who edits too. It has seen no version of a file yet."""
    with place.client() as made:
        made.hello("ann")
        yield made


@pytest.fixture
def author(place: Workplace) -> Iterator[Client]:
    """The session `agent`, whose actor is claude."""
    with place.client() as made:
        made.session_open("agent", actor="claude")
        yield made


# ── proposing and landing ──


def test_nothing_of_a_proposal_is_in_the_files_before_it_lands_as_its_authors(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    made = author.apply(
        [replace("a.txt", "5\n6", "five\n6"), write("new.txt", "new\n")], propose=True, message="Words"
    )
    assert place.files() == {"a.txt": LINES.encode(), "b.txt": LINES.encode()}
    assert isinstance(made.proposal, messages.ProposedResult)
    assert (made.proposal.state, made.proposal.rule) == ("open", "request")
    number = proposal_of(made)
    shown = reviewer.proposal_get(number)
    assert shown.view == made.proposal.view
    assert [(file.path, file.change) for file in shown.files] == [("a.txt", "modified"), ("new.txt", "added")]
    landed = reviewer.proposal_approve(number, view=shown.view)
    assert landed.transaction is not None
    assert (landed.transaction.actor, landed.transaction.session) == ("claude", "agent")
    assert landed.transaction.message == "Words"
    assert landed.transaction.proposal == number
    assert landed.transaction.approved_by == messages.ApprovedBy(actor="ann")
    assert landed.proposal.state == "landed"
    assert landed.reviewer_diff == ""
    assert place.files()["new.txt"] == b"new\n"
    assert b"five\n" in place.files()["a.txt"]


def test_hunks_land_one_by_one_and_the_rest_stays_or_is_rejected(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    number = propose(
        author,
        replace("a.txt", "5\n6", "five\n6"),
        replace("a.txt", "\n20\n", "\ntwenty\n"),
        replace("a.txt", "\n28\n", "\n"),
    )
    one, two, three = reviewer.proposal_get(number).files[0].hunks
    part = reviewer.proposal_approve(number, hunks=[two.hunk])
    assert part.proposal.state == "open"
    assert place.files()["a.txt"].count(b"twenty") == 1
    assert place.files()["a.txt"].count(b"five") == 0
    assert [hunk.state for hunk in reviewer.proposal_get(number).files[0].hunks] == ["fits", "landed", "fits"]
    whole = reviewer.proposal_approve(number, hunks=[one.hunk], rest="reject", comment="keep 28")
    assert whole.proposal.state == "partly"
    assert whole.proposal.landed == [part.transaction.seq, whole.transaction.seq]  # type: ignore[union-attr]
    assert place.files()["a.txt"] == LINES.replace("5\n6", "five\n6").replace("\n20\n", "\ntwenty\n").encode()
    with refused("decided") as again:
        reviewer.proposal_approve(number, hunks=[three.hunk])
    assert again.value.data["state"] == "partly"


def test_an_undo_takes_back_only_what_landed(place: Workplace, author: Client, reviewer: Client) -> None:
    number = propose(author, replace("a.txt", "5\n6", "five\n6"))
    landed = reviewer.proposal_approve(number, view=reviewer.proposal_get(number).view).transaction
    assert landed is not None
    author.apply([replace("a.txt", "\n20\n", "\ntwenty\n")])
    reviewer.undo(landed.seq)
    assert place.files()["a.txt"] == LINES.replace("\n20\n", "\ntwenty\n").encode()


# ── what was seen is what lands ──


def test_what_has_only_moved_lands_and_what_has_changed_is_refused_with_the_new_view(
    place: Workplace, author: Client, reviewer: Client, person: Client
) -> None:
    number = propose(author, replace("a.txt", "5\n6", "five\n6"), replace("a.txt", "\n20\n", "\ntwenty\n"))
    shown = reviewer.proposal_get(number)
    person.apply([replace("a.txt", "1\n2\n", "0\n1\n2\n")])
    assert reviewer.proposal_get(number).view != shown.view
    blocking = person.apply([replace("a.txt", "\n20\n", "\n20!\n")]).transaction
    with refused("stale") as changed:
        reviewer.proposal_approve(number, view=shown.view)
    now = reviewer.proposal_get(number)
    assert changed.value.data["view"] == now.view
    assert [hunk.state for hunk in now.files[0].hunks] == ["fits", "conflict"]
    conflict = now.files[0].hunks[1]
    assert blocking is not None
    assert conflict.blocking == [blocking.seq]
    assert conflict.now_text == "20!\n"
    landed = reviewer.proposal_approve(number, view=now.view)
    assert landed.proposal.state == "open"
    assert b"\nfive\n" in place.files()["a.txt"]
    with refused("conflict"):
        reviewer.proposal_approve(number, hunks=[conflict.hunk])


def test_a_move_elsewhere_in_the_file_keeps_the_approval(
    author: Client, reviewer: Client, person: Client
) -> None:
    number = propose(author, replace("a.txt", "25\n", "twenty-five\n"))
    shown = reviewer.proposal_get(number)
    person.apply([replace("a.txt", "1\n2\n", "1\n1.5\n2\n")])
    assert reviewer.proposal_approve(number, view=shown.view).proposal.state == "landed"


def test_an_approval_names_what_it_approves(author: Client, reviewer: Client) -> None:
    number = propose(author, write("n", "1\n"))
    with refused("invalid_params"):
        reviewer.proposal_approve(number)
    with refused("invalid_params"):
        reviewer.proposal_approve(number, hunks=[])
    with refused("unknown_proposal"):
        reviewer.proposal_approve(999_999, view="x")
    with refused("stale"):
        reviewer.proposal_approve(number, hunks=["0" * 16])


def test_a_reviewers_own_text_lands_and_the_author_is_told_the_difference(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    number = propose(author, replace("a.txt", "5\n6", "five\n6"))
    shown = reviewer.proposal_get(number, content=True)
    text = LINES.replace("5\n6", "FIVE\n6")
    own = messages.ReviewedFile(path="a.txt", content=text, base=shown.files[0].now)
    landed = reviewer.proposal_approve(number, files=[own], comment="capitals")
    assert place.files()["a.txt"].decode() == text
    assert "-five\n+FIVE\n" in landed.reviewer_diff
    assert landed.transaction is not None
    assert landed.transaction.modified is True
    told = author.proposal_wait(number, timeout=0)
    assert told.reviewer_diff == landed.reviewer_diff
    assert told.proposal.decisions[-1].comment == "capitals"


def test_a_reviewer_reads_text_of_another_encoding_and_lands_an_own_text_in_it(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    """A page that showed the bytes, and sent them back with a changed line, destroyed the file."""
    wide = codecs.BOM_UTF16_LE + LINES.encode("utf-16-le")
    place.write({"wide.txt": wide, "raw.bin": b"\x00\x81"})
    number = propose(author, replace("wide.txt", "5\n6", "zwölf\n6"))
    file = reviewer.proposal_get(number, content=True).files[0]
    assert (file.old, file.new) == (LINES, LINES.replace("5\n6", "zwölf\n6"))
    assert file.encoding == "utf-16-le"
    own = messages.ReviewedFile(path="wide.txt", content=LINES.replace("5\n6", "é\n6"), base=file.now)
    reviewer.proposal_approve(number, files=[own])
    landed = codecs.BOM_UTF16_LE + LINES.replace("5\n6", "é\n6").encode("utf-16-le")
    assert place.files()["wide.txt"] == landed
    number = propose(author, messages.Write(path="raw.bin", content="\0\udc82", force=True))
    shown = reviewer.proposal_get(number, content=True).files[0]
    assert (shown.old, shown.new, shown.encoding) == ("\0\udc81", "\0\udc82", None)


def test_a_dry_run_shows_what_would_land(place: Workplace, author: Client, reviewer: Client) -> None:
    number = propose(author, replace("a.txt", "5\n6", "five\n6"))
    shown = reviewer.proposal_get(number)
    dry = reviewer.proposal_approve(number, view=shown.view, dry_run=True)
    assert dry.transaction is None
    assert dry.files[0].content == LINES.replace("5\n6", "five\n6")
    assert dry.proposal.state == "open"
    assert place.files()["a.txt"].decode() == LINES


# ── who may decide ──


def test_only_the_author_takes_a_proposal_back(author: Client, reviewer: Client) -> None:
    number = propose(author, write("n", "1\n"))
    with refused("permission_denied"):
        reviewer.proposal_withdraw(number)
    assert author.proposal_withdraw(number).proposal.state == "withdrawn"
    with refused("decided"):
        author.proposal_withdraw(number)


# ── rejecting, reopening, comments, checks ──


def test_a_rejection_is_not_final(place: Workplace, author: Client, reviewer: Client) -> None:
    number = propose(author, write("n", "1\n"))
    assert reviewer.proposal_reject(number, comment="no").proposal.state == "rejected"
    assert "n" not in place.files()
    again = author.proposal_reopen(number).proposal
    assert (again.proposal, again.state, again.session) == (number + 1, "open", "agent")
    reviewer.proposal_approve(again.proposal, view=reviewer.proposal_get(again.proposal).view)
    assert place.files()["n"] == b"1\n"


def test_a_comment_has_a_limit_wherever_it_is_made_and_nothing_comes_of_a_longer_one(
    author: Client, reviewer: Client
) -> None:
    number = propose(author, write("n", "1\n"))
    view, long = reviewer.proposal_get(number).view, "x" * 100_001
    for said in (
        lambda: reviewer.proposal_approve(number, view=view, comment=long),
        lambda: reviewer.proposal_reject(number, comment=long),
        lambda: reviewer.proposal_comment(number, long),
        lambda: reviewer.proposal_comment(number, " "),
        lambda: reviewer.proposal_comment(number, "where?", line=1),
        lambda: reviewer.proposal_comment(number, "where?", path="n", line=0),
    ):
        with refused("invalid_params"):
            said()
    now = reviewer.proposal_get(number)
    assert (now.state, now.comments, now.decisions) == ("open", [], [])
    assert reviewer.proposal_approve(number, view=view, comment=long[1:]).transaction is not None


@pytest.mark.parametrize(("uses", "lines"), [(0, None), (None, 0), (-1, 5)])
def test_a_grant_of_nothing_is_refused(reviewer: Client, uses: int | None, lines: int | None) -> None:
    with refused("invalid_params"):
        reviewer.review_allow(["**"], 60, uses=uses, lines=lines)
    assert reviewer.review_grants().grants == []


def test_comments_and_checks_are_kept_with_the_proposal(
    author: Client, reviewer: Client, person: Client
) -> None:
    number = propose(author, replace("a.txt", "5\n6", "five\n6"))
    shown = reviewer.proposal_get(number)
    hunk = shown.files[0].hunks[0].hunk
    reviewer.proposal_comment(number, "why?", hunk=hunk)
    author.proposal_comment(number, "because", path="a.txt", line=5)
    author.proposal_check(number, shown.view, "pytest", exit=0, seconds=1.5, output="ok")
    now = reviewer.proposal_get(number)
    assert [(one.text, one.by.actor, one.hunk, one.line) for one in now.comments] == [
        ("why?", "ann", hunk, None), ("because", "claude", None, 5),
    ]  # fmt: skip
    assert [(one.name, one.exit, one.is_current) for one in now.checks] == [("pytest", 0, True)]
    author.proposal_check(number, shown.view, "make", exit=0, seconds=1.5, output="ok", hunks=[hunk])
    assert [one.hunks for one in reviewer.proposal_get(number).checks] == [None, [hunk]]
    with refused("invalid_params"):
        author.proposal_check(number, shown.view, "x", exit=0, seconds=1, output="", hunks=["0" * 12])
    person.apply([replace("a.txt", "5\n6", "V\n6")])
    assert [one.is_current for one in reviewer.proposal_get(number).checks] == [False, False]


def test_several_are_decided_at_once_and_others_are_left(author: Client, reviewer: Client) -> None:
    verdicts: list[tuple[messages.Verdict, str]] = [("approve", "landed"), ("reject", "rejected")]
    for verdict, state in verdicts:
        numbers = [propose(author, write(f"{verdict}{at}", "1\n")) for at in range(3)]
        views = [messages.ProposalView(proposal=one, view=reviewer.proposal_get(one).view) for one in numbers]
        author.apply([write(f"{verdict}1", "2\n")], proposal=numbers[1])  # since it was shown
        result = reviewer.proposal_decide(views, verdict)
        assert [one.proposal for one in result.done] == [numbers[0], numbers[2]]
        assert [(one.proposal, one.error.name) for one in result.left] == [(numbers[1], "stale")]
        now = [reviewer.proposal_get(one) for one in numbers]
        assert [(one.state, len(one.decisions)) for one in now] == [(state, 1), ("open", 0), (state, 1)]


# ── waiting and events ──


def test_an_edit_that_waits_gets_the_decision(place: Workplace, author: Client, reviewer: Client) -> None:
    got: list[Any] = []

    def edit() -> None:
        try:
            got.append(author.apply([write("n", "1\n")], propose=True, wait=30))
        except EditdError as error:
            got.append(error)

    for decide in ("approve", "reject"):
        thread = threading.Thread(target=edit)
        thread.start()
        until = time.monotonic() + 20
        while not (waiting := reviewer.proposal_list().proposals) and time.monotonic() < until:
            time.sleep(0.01)
        if decide == "approve":
            reviewer.proposal_approve(waiting[0].proposal, view=waiting[0].view)
        else:
            reviewer.proposal_reject(waiting[0].proposal, comment="no")
        thread.join(20)
        place.write({})
        if decide == "approve":
            assert got[0].transaction.session == "agent"
            assert got[0].approved_by.actor == "ann"
            author.apply([messages.Delete(path="n")])
    assert got[1].name == "rejected"
    assert got[1].data["comment"] == "no"
    assert "ann rejected" in got[1].message


def test_a_wait_that_ends_says_that_it_is_open(author: Client) -> None:
    made = author.apply([write("n", "1\n")], propose=True, wait=0.1)
    assert isinstance(made.proposal, messages.ProposedResult)
    assert made.proposal.state == "open"
    assert author.proposal_wait(proposal_of(made), timeout=0.1).state == "open"


def test_a_wait_for_what_comes_after_a_change_is_not_answered_by_that_change(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    number = propose(author, write("n", "1\n"))
    changed = reviewer.proposal_comment(number, "first").proposal.changed
    told: list[list[str]] = []

    def wait() -> None:
        with place.client() as waiting:
            answer = waiting.proposal_wait(number, timeout=60, until="any", since=changed)
            told.append([one.text for one in answer.comments])

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: bool(told) or reviewer.proposal_get(number).waiting == 1, "it waits")
    reviewer.proposal_comment(number, "second")
    thread.join()
    assert told == [["first", "second"]]
    with place.client() as late:  # it asks again from the same time, and the change was before
        assert len(late.proposal_wait(number, timeout=60, until="any", since=changed).comments) == 2


def test_each_client_that_waits_for_a_change_is_woken_by_it(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    number = propose(author, write("n", "1\n"))
    told: list[list[str]] = []

    def wait() -> None:
        with place.client() as waiting:
            answer = waiting.proposal_wait(number, timeout=60, until="any")
            told.append([one.text for one in answer.comments])

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        wait_until(lambda n=count: reviewer.proposal_get(number).waiting == n, "it waits")  # type: ignore[misc]
    reviewer.proposal_comment(number, "first")
    wait_until(lambda: len(told) == len(threads), "each is woken")
    for thread in threads:
        thread.join()
    assert told == [["first"]] * len(threads)


def test_subscribers_hear_of_each_step(place: Workplace, author: Client, reviewer: Client) -> None:
    with place.client() as other, other.subscribe(events=["proposal"]) as events:
        number = propose(author, replace("a.txt", "5\n6", "five\n6"))
        reviewer.proposal_comment(number, "hm")
        landed = reviewer.proposal_approve(number, view=reviewer.proposal_get(number).view).transaction
        heard = [events.wait(10) for _ in range(3)]
    assert [one.data["what"] for one in heard if one is not None] == ["opened", "commented", "landed"]
    assert heard[2] is not None
    assert heard[2].data["proposal"]["state"] == "landed"
    assert landed is not None
    assert heard[2].data["seq"] == landed.seq


# ── listing, restarts ──


def test_a_proposal_of_the_same_request_is_found_again(author: Client, reviewer: Client) -> None:
    first = author.apply([write("n", "1\n")], propose=True, request_id="r")
    again = author.apply([write("n", "1\n")], propose=True, request_id="r")
    assert first.proposal == again.proposal
    waited = author.apply([write("n", "1\n")], propose=True, request_id="r", wait=0.1)
    assert waited.proposal == first.proposal, "to wait is no part of a request"
    with refused("invalid_params"):
        author.apply([write("n", "2\n")], propose=True, request_id="r")
    number = proposal_of(first)
    reviewer.proposal_approve(number, view=reviewer.proposal_get(number).view)
    landed = author.apply([write("n", "1\n")], propose=True, request_id="r")
    assert landed.transaction is not None
    assert landed.transaction.proposal == number


# ── sessions and rules ──


def test_each_edit_of_a_session_that_always_proposes_waits(place: Workplace, author: Client) -> None:
    assert author.status().state == "ready"
    with place.client() as other:
        other.session_open("careful", propose="always")
        made = other.apply([write("n", "1\n")])
        assert made.transaction is None
        assert isinstance(made.proposal, messages.ProposedResult)
        assert made.proposal.rule == "session"
        number = proposal_of(made)
        name = other.begin().changeset
        other.stage(name, [write("m", "1\n")])
        committed = other.commit(name)
        landed = author.apply([write("n", "2\n")]).transaction
        assert landed is not None
        undone = other.undo(landed.seq)
        for made in (committed, undone):
            assert made.transaction is None
            assert isinstance(made.proposal, messages.ProposedResult)
            assert made.proposal.rule == "session"
        other.session_close(withdraw=True)
        assert other.proposal_get(number).state == "withdrawn"


def test_subscribers_hear_that_a_view_has_moved_and_that_a_grant_would_let_it_land(
    author: Client, reviewer: Client, person: Client
) -> None:
    with reviewer.subscribe(events=["proposal"]) as events:
        number = propose(author, replace("a.txt", "5\n6", "five\n6"))
        opened = events.wait(10)
        for old, new in (("\n29\n", "\nXXIX\n"), ("\nXXIX\n", "\n29!\n")):
            person.apply([replace("a.txt", old, new)])
        moved = events.wait(10)
        reviewer.review_allow(["a.txt"], 60)
        allowed = events.wait(10)
    assert opened is not None
    assert moved is not None
    assert allowed is not None
    assert [one.data["what"] for one in (opened, moved, allowed)] == ["opened", "moved", "allowed"]
    assert moved.data["proposal"]["view"] == reviewer.proposal_get(number).view
    assert moved.data["proposal"]["view"] != opened.data["proposal"]["view"]


RULES = """
[[review.rule]]
name = "locks"
paths = ["*.lock"]

[[review.rule]]
name = "secrets"
paths = ["secret/**"]
action = "refuse"

[[review.rule]]
name = "small"
paths = ["tests/**"]
action = "land"
at_most = { lines = 2 }
"""


def test_rules_decide_by_path(place: Workplace, author: Client, reviewer: Client) -> None:
    reconfigure(place, author, RULES)
    made = author.apply([write("x.lock", "1\n"), write("y", "1\n")])
    assert isinstance(made.proposal, messages.ProposedResult)
    assert made.proposal.rule == "locks"
    with refused("permission_denied"):
        author.apply([write("secret/k", "1\n")])
    landed = author.apply([write("tests/a", "1\n")]).transaction
    assert landed is not None
    assert landed.approved_by == messages.ApprovedBy(rule="small")
    waits = author.apply([write("tests/b", "1\n2\n3\n")])
    assert isinstance(waits.proposal, messages.ProposedResult)
    dry = author.apply([write("z.lock", "1\n")], dry_run=True)
    assert isinstance(dry.would_propose, messages.ProposedResult)
    assert dry.would_propose.rule == "locks"
    assert author.apply([write("y", "1\n")]).transaction is not None
    assert len(reviewer.proposal_list().proposals) == 2


def test_no_rule_and_no_grant_lets_a_symlink_land_that_leads_out(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    """The attack: what other programs then write through the link is outside of the workspace."""
    rule = '[[review.rule]]\nname = "free"\npaths = ["free/**"]\naction = "land"\n'
    reconfigure(place, author, f'[review]\ndefault = "ask"\n{rule}')
    reviewer.review_allow(["granted/**"], 60.0)
    outside = str(place.folder / "outside")
    links = [("free/out", outside), ("free/up", "../.."), ("granted/out", outside), ("granted/up", "../..")]
    for path, target in links:
        made = author.apply([messages.Symlink(path=path, target=target)])
        assert made.transaction is None
        assert made.proposal is not UNSET
        assert not (place.root / path).is_symlink()
    for path in ("free/in", "granted/in"):
        made = author.apply([messages.Symlink(path=path, target="../a.txt")])
        assert made.transaction is not None
    reconfigure(place, author, "")


def test_a_grant_lets_edits_land_until_used_up(place: Workplace, author: Client, reviewer: Client) -> None:
    reconfigure(place, author, RULES)
    waiting = propose(author, write("a.lock", "1\n"))
    given = reviewer.review_allow(["*.lock"], 60, session="agent", uses=1)
    assert given.matching == [waiting]
    made = author.apply([write("b.lock", "1\n")]).transaction
    assert made is not None
    assert isinstance(made.approved_by, messages.ApprovedBy)
    assert made.approved_by.rule == f"grant {given.grant}"
    assert author.apply([write("c.lock", "1\n")]).transaction is None
    other = reviewer.review_allow(["*.lock"], 60)
    assert [one.grant for one in reviewer.review_grants().grants][-1] == other.grant
    reviewer.review_revoke(other.grant)
    assert author.apply([write("d.lock", "1\n")]).transaction is None


HOOK = f"""
[[hook]]
name = "upper"
glob = ["*.up"]
command = [{sys.executable!r}, "-c", "import sys; sys.stdout.write(sys.stdin.read().upper())"]

[[hook]]
name = "short"
glob = ["*.up"]
kind = "check"
command = [{sys.executable!r}, "-c", "import sys; sys.exit(len(sys.stdin.read()) > 9)"]
"""


def test_hooks_see_what_is_proposed_and_the_reviewers_text(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    reconfigure(place, author, HOOK)
    made = author.apply([write("a.up", "one\n")], propose=True, wait=0.1)
    assert isinstance(made.proposal, messages.ProposedResult)
    number = proposal_of(made)
    assert reviewer.proposal_get(number, content=True).files[0].new == "ONE\n"
    long = messages.ReviewedFile(path="a.up", content="much longer\n", base=None)
    with refused("rejected"):
        reviewer.proposal_approve(number, files=[long])
    assert reviewer.proposal_get(number).state == "open"
    own = messages.ReviewedFile(path="a.up", content="two\n", base=None)
    reviewer.proposal_approve(number, files=[own])
    assert place.files()["a.up"] == b"TWO\n"


def test_what_others_have_made_is_moot(author: Client, reviewer: Client, person: Client) -> None:
    number = propose(author, replace("a.txt", "5\n6", "five\n6"))
    person.apply([replace("a.txt", "5\n6", "five\n6")])
    assert reviewer.proposal_get(number).state == "moot"


def test_an_undo_can_wait_too(place: Workplace, author: Client, reviewer: Client) -> None:
    edited = author.apply([replace("a.txt", "5\n6", "five\n6")]).transaction
    assert edited is not None
    made = author.undo(edited.seq, propose=True)
    assert made.transaction is None
    assert b"five" in place.files()["a.txt"]
    number = proposal_of(made)
    shown = reviewer.proposal_get(number)
    assert shown.kind == "undo"
    landed = reviewer.proposal_approve(number, view=shown.view).transaction
    assert landed is not None
    assert (landed.kind, landed.undoes) == ("undo", [edited.seq])
    assert place.files()["a.txt"].decode() == LINES


def test_a_commit_of_a_changeset_can_wait(place: Workplace, author: Client) -> None:
    begun = author.begin(propose=True)
    author.stage(begun.changeset, [write("n", "1\n")])
    made = author.commit(begun.changeset)
    assert isinstance(made.proposal, messages.ProposedResult)
    assert "n" not in place.files()


def test_a_proposal_can_be_replaced_by_its_author(place: Workplace, author: Client, reviewer: Client) -> None:
    number = propose(author, write("n", "1\n"))
    shown = reviewer.proposal_get(number)
    made = author.apply([write("n", "2\n")], proposal=number)
    assert isinstance(made.proposal, messages.ProposedResult)
    assert (made.proposal.proposal, made.proposal.revision) == (number, 2)
    with refused("stale"):
        reviewer.proposal_approve(number, view=shown.view)
    reviewer.proposal_approve(number, view=reviewer.proposal_get(number).view)
    assert place.files()["n"] == b"2\n"


# ── through a proposal ──


def test_files_are_read_as_a_proposal_would_leave_them(author: Client) -> None:
    number = propose(
        author, replace("a.txt", "5\n6", "five\n6"), write("n", "1\n"), messages.Delete(path="b.txt")
    )
    assert author.read("a.txt", proposal=number).content == LINES.replace("5\n6", "five\n6")
    assert author.read("n", proposal=number).content == "1\n"
    with refused("file_missing"):
        author.read("b.txt", proposal=number)
    assert [one.size for one in author.stat(["n", "b.txt"], proposal=number).files] == [2, None]
    assert "+five\n" in author.diff(proposal=number).diff
