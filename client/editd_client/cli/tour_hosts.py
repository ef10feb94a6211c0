"""`editctl tour --hosts`: three hosts of one workspace, as three folders with a repository between them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from editd_client.locate import Workspace

if TYPE_CHECKING:
    from editd_client.cli.tour_workspace import TourWorkspace
    from editd_client.client import Client

HOSTS = ("laptop", "sandbox", "runner")
PATH = "recipe.md"
WHISK, REST, SERVE = "Whisk the eggs", "half an hour", "sugar and lemon"


class HostsTour:
    """The three hosts: the first is the workspace of the tour, and the others are folders beside it."""

    def __init__(self, scene: TourWorkspace) -> None:
        self._scene = scene
        for host in HOSTS[1:]:
            os.mkdir(self._folder(host))
            scene.others.append(self._folder(host))
        self._server = os.path.join(scene.temporary, "work.git")
        _make_bare_repository(self._server)

    def play(self) -> None:
        """Run the whole tour."""
        self._join()
        self._arrive()
        self._merge()
        self._set_aside()
        self._undo()

    def _join(self) -> None:
        self._scene.step(
            "Three hosts, and a repository between them",
            "The folders are laptop, sandbox and runner, each with its own daemon. An empty git "
            "repository, ../work.git, is the server. The first host begins the log, and the others join it.",
        )
        self._scene.editctl("remote", "init", "--yes", "--host", "laptop", "../work.git")
        for host in HOSTS[1:]:
            self._on(host, "remote", "join", "--host", host, "../work.git")
        self._claim_equal("all three have the same files")

    def _arrive(self) -> None:
        self._scene.step(
            "An edit arrives on the others",
            "It is answered at once, and lands in the log a moment later. `remote now` waits for that.",
        )
        self._scene.editctl("replace", PATH, WHISK, "Beat the eggs", "--actor", "alice", "-m", "Beat them")
        self._exchange()
        self._on("sandbox", "log", "-n", "1")
        with self._client("sandbox") as client:
            arrived = client.log(limit=1).transactions[0]
        self._scene.claim(
            "it has its author, its host and its number there",
            (arrived.actor, arrived.host, arrived.number) == ("alice", "laptop", 1),
        )

    def _merge(self) -> None:
        self._scene.step(
            "Two hosts edit one file at the same time",
            "The runner is off line. It edits another line of the file than the sandbox does.",
        )
        self._on("runner", "remote", "pause")
        self._on("runner", "replace", PATH, REST, "an hour", "--actor", "bob", "-m", "Let it rest longer")
        self._on("sandbox", "replace", PATH, SERVE, "jam", "--actor", "alice", "-m", "With jam")
        self._exchange("sandbox")
        self._on("runner", "remote", "resume")
        self._exchange()
        self._claim_equal("all three have both edits, merged by lines")
        self._scene.claim("nothing is lost", {"an hour", "jam"} <= set(self._words()))

    def _set_aside(self) -> None:
        self._scene.step(
            "Two hosts edit one line",
            "What lands second does not merge. It is set aside as a whole, and becomes a proposal on all "
            "hosts. Anybody decides about it, anywhere.",
        )
        self._on("runner", "remote", "pause")
        self._on("runner", "replace", PATH, "with jam", "with honey", "--actor", "bob", "-m", "Honey")
        self._on("sandbox", "replace", PATH, "with jam", "with cream", "--actor", "alice", "-m", "Cream")
        self._exchange("sandbox")
        self._on("runner", "remote", "resume")
        self._exchange()
        self._claim_equal("all three have the cream")
        self._scene.editctl("proposal", "list")
        with self._client("laptop") as client:
            (proposal,) = client.proposal_list().proposals
        self._scene.claim("the laptop has the proposal of the runner", proposal.message == "Honey")
        self._scene.editctl("proposal", "reject", str(proposal.proposal), "-m", "Cream it is")
        self._exchange()
        with self._client("runner") as client:
            self._scene.claim("the runner has the decision", client.proposal_list().proposals == [])

    def _undo(self) -> None:
        self._scene.step(
            "Any host undoes what another has done",
            "@1 is the first entry of the log, the same everywhere.",
        )
        self._on("runner", "undo", "@1")
        self._exchange()
        self._claim_equal("all three have the whisk again")
        self._scene.claim("the later edits stay", {WHISK, "an hour", "cream"} <= set(self._words()))
        self._scene.editctl("remote", "status")
        self._scene.tell("That was the tour. docs/hosts.md has the rest.")

    # ── parts ──

    def _folder(self, host: str) -> str:
        return self._scene.root if host == HOSTS[0] else os.path.join(self._scene.temporary, host)

    def _client(self, host: str) -> Client:
        return self._scene.client_of(Workspace(self._folder(host), "named"))

    def _on(self, host: str, *words: str) -> None:
        self._scene.editctl("-C", f"../{host}", *words)

    def _exchange(self, *hosts: str) -> None:
        """Have these hosts land what they have (default: all), and then all take it in."""
        for host in hosts or (*reversed(HOSTS), *HOSTS):
            with self._client(host) as client:
                client.remote_now(timeout=20)

    def _claim_equal(self, sentence: str) -> None:
        texts = set()
        for host in HOSTS:
            with open(os.path.join(self._folder(host), PATH), encoding="utf-8") as file:
                texts.add(file.read())
        self._scene.claim(sentence, len(texts) == 1)

    def _words(self) -> list[str]:
        """Return the parts of the text that the tour has changed, as far as they are there."""
        text = self._scene.text(PATH)
        return [words for words in (WHISK, "an hour", "jam", "cream") if words in text]


def _make_bare_repository(folder: str) -> None:
    """Make an empty repository, as `git init --bare` does (gitrepository-layout(5))."""
    for name in ("objects", "refs"):
        os.makedirs(os.path.join(folder, name))
    config = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
    files = {"HEAD": "ref: refs/heads/main\n", "config": config}
    for name, content in files.items():
        with open(os.path.join(folder, name), "x", encoding="ascii") as file:
            file.write(content)
