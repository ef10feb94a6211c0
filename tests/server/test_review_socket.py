"""The reviewers' own socket: decisions are taken there only, and an agent in a sandbox does not have it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from editd.config.paths import review_socket_path
from editd.wire import messages
from editd_client.client import Client
from editd_client.errors import EditdError
from support.reviewers import PIN, author_of, config_folder, set_pin
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

LINES = "".join(f"{number}\n" for number in range(1, 31))
OWN = '[review]\nsocket = "own"\ndefault = "ask"\n'
REFUSE = '[[review.rule]]\nname = "never"\npaths = ["secret"]\naction = "refuse"\n'


def configure(place: Workplace, text: str) -> None:
    (config_folder(place) / "config.toml").write_text(text)
    set_pin(place)


@pytest.fixture
def author(place: Workplace) -> Iterator[Client]:
    configure(place, OWN + REFUSE)
    with author_of(place, {"a.txt": LINES, "secret": "x\n"}) as made:
        yield made


@pytest.fixture
def reviewer(place: Workplace, author: Client) -> Iterator[Client]:
    with Client(review_socket_path(place.socket), reconnect=False) as made:
        made.hello("ann")
        made.review_unlock(PIN)  # author and reviewer are this one process
        yield made


def propose(client: Client) -> messages.ProposedResult:
    made = client.apply([replace("a.txt", "\n5\n", "\nfive\n")])
    assert isinstance(made.proposal, messages.ProposedResult)
    return made.proposal


def refused(name: str) -> Any:
    return pytest.raises(EditdError, check=lambda error: error.name == name)


def test_decisions_and_grants_are_refused_on_the_ordinary_socket_with_the_way_to_go(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    made = propose(author)
    number, view = made.proposal or 0, made.view or ""
    with place.client() as other:
        for decide in (
            lambda: other.review_unlock(PIN),
            lambda: other.proposal_approve(number, view=view),
            lambda: other.proposal_reject(number),
            lambda: other.review_allow(["**"], 60),
            lambda: other.review_revoke(1),
        ):
            with refused("permission_denied") as refusal:
                decide()
            assert refusal.value.data["needs_review_socket"] is True
            assert review_socket_path(place.socket) not in str(refusal.value)
        left = other.proposal_decide([messages.ProposalView(proposal=number, view=view)], "approve").left
        assert [one.error.name for one in left] == ["permission_denied"]
        assert other.proposal_approve(number, view=view, dry_run=True).files, "nothing is decided by this"
        assert other.review_grants().grants == []
    assert place.files()["a.txt"] == LINES.encode()
    landed = reviewer.proposal_approve(number, view=view).proposal
    assert landed.state == "landed"
    assert landed.decisions[-1].by.via == "review socket"
    reviewer.review_allow(["docs/**"], 60)
    assert author.review_grants().grants[0].by.via == "review socket"


def test_an_answer_for_a_user_that_is_trusted_decides_nothing_on_the_ordinary_socket(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    """The attack: an agent in a sandbox says that an MCP client has asked its user."""
    configure(place, OWN + 'elicitation = "trusted"\n')
    reviewer.config_reload()
    made = propose(author)
    shown = [messages.ProposalView(proposal=made.proposal or 0, view=made.view or "")]
    verdicts: list[messages.Verdict] = ["approve", "reject"]
    with place.client() as other:
        for verdict in verdicts:
            (left,) = other.proposal_decide(shown, verdict, elicited=True).left
            assert (left.error.name, left.error.data["needs_review_socket"]) == ("permission_denied", True)
    assert reviewer.proposal_get(made.proposal or 0).state == "open"
    assert place.files()["a.txt"] == LINES.encode()
    assert [one.proposal for one in reviewer.proposal_decide(shown, "approve").done] == [made.proposal]


def test_what_comes_in_on_the_review_socket_lands_at_once(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    made = reviewer.apply([write("new.txt", "1\n")])
    assert made.transaction is not None
    assert made.proposal in (None, msgspec.UNSET)
    undone = reviewer.undo(made.transaction.seq)
    assert undone.transaction is not None
    with refused("permission_denied"):  # a rule that refuses holds for everybody
        reviewer.apply([write("secret", "y\n")])
    asked = reviewer.apply([write("new.txt", "2\n")], propose=True)
    assert asked.transaction is None, "it has asked for a review itself"
    assert author.apply([write("new.txt", "3\n")]).transaction is None


def test_the_socket_is_private_shown_and_goes_with_the_daemon(place: Workplace, author: Client) -> None:
    path = review_socket_path(place.socket)
    assert author.status().review_socket is None, "the ordinary socket does not name it"
    with Client(path, reconnect=False) as reviewer:
        assert reviewer.status().review_socket == path
    assert path.endswith(f"{place.id}.review.sock")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert path in place.editctl("status").stdout
    place.stop()
    assert not os.path.lexists(path)
    configure(place, "")
    with place.start() as client:
        assert client.status().review_socket is None
        assert not os.path.lexists(path)


def test_a_socket_that_a_killed_daemon_left_is_replaced_or_removed(place: Workplace, author: Client) -> None:
    path = review_socket_path(place.socket)
    place.kill()
    assert os.path.lexists(path)
    place.start().close()
    Client(path, reconnect=False).close()
    place.kill()
    configure(place, "")
    place.start().close()
    assert not os.path.lexists(path)


def test_editctl_finds_the_socket_for_decisions_and_proposes_on_the_other(
    place: Workplace, author: Client
) -> None:
    """The decision gets to the question for the PIN, which the ordinary socket would not ask."""
    made = propose(author)
    denied = place.editctl("proposal", "approve", "1", "--view", made.view or "")
    assert denied.returncode == 1
    assert "only with the PIN" in denied.stderr
    assert "waits for a reviewer" in place.editctl("write", "new", stdin="1\n").stdout
    (config := Path(place.environment["XDG_CONFIG_HOME"]) / "editd" / "review.pin").unlink()
    assert not config.exists()
    assert "grant 1" in place.editctl("review", "allow", "docs/**", "--of", "nobody").stdout


def test_a_reviewer_whose_client_knows_only_the_review_socket_starts_the_daemon(
    place: Workplace, author: Client
) -> None:
    own = review_socket_path(place.socket)
    place.stop()
    written = place.editctl("write", "new", stdin="1\n", EDITD_SOCKET=own)
    assert written.returncode == 0, written.stderr
    assert place.files()["new"] == b"1\n", "it has landed at once"
    with place.client() as client:
        assert client.status().review_socket is None
    assert place.editctl("stop").returncode == 0
    place.start().close()


# ── an agent in a sandbox ──

SANDBOX = """
set -e
mount --bind "$ROOT" "$ROOT"; mount -o remount,bind,ro "$ROOT"
mount -t tmpfs none "$STATE"; mount -t tmpfs none "$CONFIG"
touch "$SCRATCH/kept"; mount --bind "$SOCKET" "$SCRATCH/kept"
mount -t tmpfs none "$(dirname "$SOCKET")"
touch "$SOCKET"; mount --bind "$SCRATCH/kept" "$SOCKET"; umount "$SCRATCH/kept"
exec "$@"
"""
AGENT = """
import json, os, sys
from editd.config.paths import review_socket_path
from editd.wire.messages import Replace
from editd_client.client import Client
from editd_client.errors import EditdError
root, socket = sys.argv[1:]
said = {}
def attempt(name, work):
    try:
        said[name] = work()
    except EditdError as error:
        said[name] = error.name
    except OSError as error:
        said[name] = error.strerror
attempt("write", lambda: open(os.path.join(root, "a.txt"), "w").write("x"))
with Client(socket, reconnect=False) as client:
    edit = Replace(path="a.txt", old="\\n5\\n", new="\\nfive\\n")
    attempt("apply", lambda: client.apply([edit]).proposal.state)
    attempt("view", lambda: client.proposal_get(1).view)
with Client(socket, reconnect=False) as other:
    attempt("approve", lambda: other.proposal_approve(1, view=said["view"]))
    attempt("allow", lambda: other.review_allow(["**"], 60))
attempt("sees the other", lambda: os.path.lexists(review_socket_path(socket)))
print(json.dumps(said))
"""


def why_no_sandbox() -> str | None:
    """Return the reason why this system gives an unprivileged program no mount namespace."""
    if shutil.which("unshare") is None:
        return "there is no unshare(1)"
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/tmp"],
        capture_output=True, check=False,
    )  # fmt: skip
    return tried.stderr.decode().strip() if tried.returncode else None


def test_an_agent_with_a_read_only_workspace_and_the_ordinary_socket_cannot_change_anything(
    place: Workplace, author: Client, reviewer: Client, tmp_path: Path
) -> None:
    if (reason := why_no_sandbox()) is not None:
        pytest.skip(f"no mount namespace here: {reason}")
    variables = {
        "ROOT": str(place.root), "STATE": str(place.folder / "state"), "CONFIG": str(place.folder / "config"),
        "SCRATCH": str(tmp_path), "SOCKET": place.socket,
    }  # fmt: skip
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", textwrap.dedent(SANDBOX), "sh",
         sys.executable, "-c", AGENT, str(place.root), place.socket],
        env=place.environment | variables, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {name: said for name, said in json.loads(done.stdout).items() if name != "view"} == {
        "write": "Read-only file system",
        "apply": "open",
        "approve": "permission_denied",
        "allow": "permission_denied",
        "sees the other": False,
    }
    assert place.files()["a.txt"] == LINES.encode()
    view = reviewer.proposal_get(1).view
    assert reviewer.proposal_approve(1, view=view).transaction is not None
    assert b"five" in place.files()["a.txt"]
