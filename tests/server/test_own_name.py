"""Who may act for whom where a connection has no session, states a name, or has another session.

One daemon serves the module. Each test has connections of its own, and names that no other test uses.
Each connection has given the PIN, so that nothing but the rule under test refuses it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire import messages
from editd_client.errors import EditdError
from support.reviewers import PIN, set_pin
from support.workplace import Workplace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd_client.client import Client

FILES = {"a.txt": "1\n", "b.txt": "1\n"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("names") / "place", FILES) as made:
        set_pin(made)
        made.start().close()
        yield made


def owner_of(place: Workplace) -> Client:
    """Return a connection without a session, by which the owner may do everything."""
    client = place.client()
    client.hello("kim")
    client.review_unlock(PIN)
    return client


@pytest.fixture
def kim(shared: Workplace) -> Iterator[Client]:
    with owner_of(shared) as made:
        yield made


@pytest.fixture
def other(shared: Workplace) -> Iterator[Client]:
    """Another connection of kim, without a session as well."""
    with owner_of(shared) as made:
        yield made


def refusal(ask: Callable[[], object]) -> EditdError:
    with pytest.raises(EditdError) as caught:
        ask()
    return caught.value


def propose(client: Client, path: str, text: str = "proposed\n", **more: Any) -> int:
    made = client.apply([write(path, text)], propose=True, **more)
    assert isinstance(made.proposal, messages.ProposedResult)
    assert made.proposal.proposal is not None
    return made.proposal.proposal


# ── a connection without a session ──


def test_no_connection_without_a_session_takes_back_submits_or_revises_what_another_proposed(
    kim: Client, other: Client
) -> None:
    number = propose(kim, "without.txt")
    for ask in (
        lambda: other.proposal_withdraw(number),
        lambda: other.proposal_submit(number),
        lambda: other.apply([write("without.txt", "revised\n")], proposal=number),
    ):
        denied = refusal(ask)
        assert (denied.name, denied.data["proposal"]) == ("permission_denied", number)
    shown = other.proposal_get(number)
    assert (shown.state, shown.revision, shown.decisions) == ("open", 1, [])
    kim.apply([write("without.txt", "revised\n")], proposal=number)
    assert other.proposal_get(number).revision == 2
    assert kim.proposal_withdraw(number).proposal.state == "withdrawn"


def test_a_connection_without_a_session_reopens_what_another_proposed_only_as_the_owner(
    shared: Workplace, kim: Client, other: Client
) -> None:
    number = propose(kim, "reopened.txt")
    kim.proposal_withdraw(number)
    with shared.client() as agent:
        agent.hello("codex", session="reopens")
        agent.exec_begin("Edit a.txt", paths=["a.txt"], key="reopens")  # as a hook does, so it is an agent's
        agent.exec_end(key="reopens")
        denied = refusal(lambda: agent.proposal_reopen(number))
        assert denied.name == "permission_denied"
        assert "reopen another's proposal" in denied.message
    assert other.proposal_reopen(number).proposal.state == "open"


def test_a_session_grants_itself_nothing_also_if_it_names_none(shared: Workplace) -> None:
    with owner_of(shared) as client:
        client.session_open("grants")
        for session in ("grants", None):
            denied = refusal(partial(client.review_allow, ["a.txt"], 60, session=session))
            assert (denied.name, denied.data["session"]) == ("permission_denied", "grants")
        assert client.review_grants().grants == []
        made = client.review_allow(["a.txt"], 60, session="somebody else").grant
        client.review_revoke(made)


def test_a_connection_that_calls_itself_another_actor_revises_nothing_of_the_first(kim: Client) -> None:
    number = propose(kim, "renamed.txt")
    kim.hello("lee")
    denied = refusal(lambda: kim.apply([write("renamed.txt", "revised\n")], proposal=number))
    assert (denied.name, denied.data["proposal"]) == ("permission_denied", number)
    kim.hello("kim")
    kim.apply([write("renamed.txt", "revised\n")], proposal=number)
    assert kim.proposal_withdraw(number).proposal.revision == 2


def test_a_connection_without_a_session_extends_and_ends_no_lease_of_one(
    shared: Workplace, kim: Client
) -> None:
    with shared.client() as holder:
        holder.session_open("leases")
        lease = holder.lease_acquire(["held/**"], ttl=60)
        for ask in (
            lambda: kim.lease_renew(lease.lease, 3600),
            lambda: kim.lease_release(lease.lease),
            lambda: kim.lease_acquire(["more/**"], 60, session="leases"),
        ):
            denied = refusal(ask)
            assert (denied.name, denied.data["session"]) == ("unknown_session", "leases")
        (held,) = [one for one in kim.lease_list().leases if one.session == "leases"]
        assert (held.lease, held.expires) == (lease.lease, lease.expires)
        kim.lease_release(lease.lease, force=True)
        assert refusal(lambda: holder.lease_renew(lease.lease, 60)).name == "invalid_params", "it has ended"


def test_a_connection_that_has_proposed_itself_decides_about_nobodys_work(kim: Client, other: Client) -> None:
    own, theirs = propose(kim, "own.txt"), propose(other, "theirs.txt")
    shown = messages.ProposalView(proposal=theirs, view=kim.proposal_get(theirs).view)
    (left,) = kim.proposal_decide([shown], "approve").left
    for denied in (
        left.error,
        refusal(lambda: kim.proposal_approve(theirs, view=shown.view)),
        refusal(lambda: kim.proposal_reject(theirs)),
    ):
        assert denied.name == "permission_denied"
        assert "has proposed edits itself" in denied.message
    assert kim.proposal_get(theirs).state == "open"
    kim.proposal_withdraw(own)
    other.proposal_withdraw(theirs)


def test_kin_of_a_session_with_an_open_proposal_resumes_and_marks_it_only_with_the_pin(
    shared: Workplace,
) -> None:
    with shared.client() as author, shared.client() as kin:
        author.session_open("watched")
        made = author.apply([write("watched.txt", "1\n")]).transaction
        assert made is not None
        kin.hello("lee")
        kin.session_pause("watched", action="propose")
        kin.session_resume("watched")  # nothing of it waits
        number = propose(author, "waits.txt")
        kin.session_pause("watched")  # a new pause only stops it
        asks: list[Callable[[], object]] = [
            lambda: kin.session_resume("watched"),
            lambda: kin.session_pause("watched", action="propose"),
            lambda: kin.review_mark([made.seq]),
            lambda: kin.review_allow(["watched.txt"], 60, session="watched"),
        ]
        for ask in asks:
            denied = refusal(ask)
            assert (denied.name, denied.data.get("needs_pin")) == ("permission_denied", True)
        kin.review_unlock(PIN)
        kin.session_resume("watched")
        assert kin.review_mark([made.seq]).marked == 1
        author.proposal_withdraw(number)


# ── brackets ──


def test_a_session_ends_no_bracket_of_another_and_asks_about_none(
    shared: Workplace, kim: Client, other: Client
) -> None:
    began = kim.exec_begin("Edit b.txt", paths=["b.txt"], key="mine", session="brackets").exec
    other.hello("kim", session="elsewhere")
    for ask in (
        lambda: other.exec_end(key="mine", session="brackets", status=0),
        lambda: other.exec_end(every=True, session="brackets"),
        lambda: other.exec_end(began, 0, session="brackets"),
        lambda: other.exec_ask(key="mine", session="brackets"),
    ):
        denied = refusal(ask)
        assert (denied.name, denied.data["session"]) == ("permission_denied", "brackets")
    shared.write({"b.txt": "2\n"})
    ended = kim.exec_end(key="mine", session="brackets", status=0).transaction
    assert ended is not None
    assert (ended.kind, ended.session) == ("exec", "brackets")
    began = kim.exec_begin("Edit b.txt", paths=["b.txt"], key="mine", session="brackets").exec
    with shared.client() as hook:  # the next process of the same hook, which has no session
        assert hook.exec_end(began, 0, session="brackets").transactions == []
    assert refusal(lambda: kim.exec_end(began, 0, session="brackets")).name == "invalid_params", "it is ended"


# ── a name that another connection has opened since ──


def test_a_connection_that_stated_a_name_before_it_was_opened_acts_in_it_no_more(
    shared: Workplace, kim: Client, other: Client
) -> None:
    kim.hello("kim", session="opened later")
    for path in ("x", "y"):
        propose(kim, path)  # while it is just a name
    with owner_of(shared) as opener:
        opener.session_open("opened later", actor="claude", batch="draft")
        lease = opener.lease_acquire(["leased/**"], ttl=60).lease
        made = opener.apply([write("later.txt", "1\n")]).proposal
        assert isinstance(made, messages.ProposedResult)
        number = made.proposal
        assert number is not None
        shown = other.proposal_get(number)
        for ask in (
            lambda: kim.apply([write("later.txt", "2\n")]),
            lambda: kim.proposal_comment(number, "in its name"),
            lambda: kim.proposal_check(number, shown.view, "test", exit=0, seconds=1, output=""),
            lambda: kim.proposal_submit(number),
            lambda: kim.proposal_withdraw(number),
            lambda: kim.proposal_reopen(number),
            lambda: kim.lease_release(lease, force=True),
            lambda: kim.publish("In its name", session="opened later"),
            lambda: kim.review_allow(["a.txt"], 60, session="another"),
            lambda: kim.session_pause("another"),
            kim.session_close,
        ):
            denied = refusal(ask)
            assert (denied.name, denied.data["session"]) == ("unknown_session", "opened later")
        now = other.proposal_get(number)
        assert (now.state, now.comments, now.checks, now.decisions) == ("draft", [], [], [])
        assert [one.lease for one in other.lease_list().leases] == [lease]
        assert kim.log(limit=1) is not None, "it may read"
        kim.hello("kim")
        kim.proposal_comment(number, "in my own")
        assert other.proposal_get(number).comments[0].by.session is None
        opener.session_close(withdraw=True)


def test_a_changeset_that_was_begun_in_a_name_is_not_committed_once_another_has_opened_it(
    shared: Workplace, kim: Client
) -> None:
    changeset = kim.begin(session="begun").changeset
    kim.stage(changeset, [write("begun.txt", "1\n")])
    with shared.client() as opener:
        opener.session_open("begun")
        denied = refusal(lambda: kim.commit(changeset))
        assert (denied.name, denied.data["session"]) == ("unknown_session", "begun")
        assert not (shared.root / "begun.txt").exists()
        opener.session_close()
    made = kim.commit(changeset).transaction
    assert made is not None
    assert made.session == "begun", "it is just a name again"


def test_a_connection_whose_name_is_opened_by_another_still_ends_its_own(
    shared: Workplace, kim: Client
) -> None:
    kim.hello("kim", session="holds")
    changeset = kim.begin().changeset
    kim.document_hold("a.txt", None, "held\n")
    with shared.client() as opener:
        opener.session_open("holds")
        kim.document_release("a.txt")
        kim.abort(changeset)
        opener.session_close()
