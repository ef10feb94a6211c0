"""A repository with a trap at each place where git runs a program: the trap notes its name in a file.

It has a file system monitor, all hooks, filters, text conversions, external diffs, merge drivers, aliases for
git's own verbs, attributes, included configuration, and the programs of a server.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = (
    "applypatch-msg", "fsmonitor-watchman", "post-checkout", "post-commit", "post-index-change", "post-merge",
    "post-receive", "post-rewrite", "post-update", "pre-auto-gc", "pre-commit", "pre-push", "pre-receive",
    "proc-receive", "push-to-checkout", "reference-transaction", "update",
)  # fmt: skip
ALIASED = ("check-ignore", "config", "fetch", "ls-files", "ls-remote", "push", "repack", "status")
IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@x")


class Bait:
    """The traps, and the file that has the names of those that ran."""

    def __init__(self, folder: Path) -> None:
        """Make the folder of the traps, which is no workspace and no repository."""
        folder.mkdir()
        self.noted = folder / "noted"
        self._folder = folder

    def trap(self, name: str) -> str:
        """Return the path of a program that notes its name, and passes its input on."""
        program = self._folder / name
        program.write_text(f"#!/bin/sh\necho {name} >> {self.noted}\ncat < /dev/null\nexit 0\n")
        program.chmod(0o755)
        return str(program)

    def sprung(self) -> list[str]:
        """Return the names of the traps that ran since the last call."""
        names = sorted(set(self.noted.read_text().split())) if self.noted.exists() else []
        self.noted.unlink(missing_ok=True)
        return names

    def configuration(self) -> str:
        """Return a configuration that names a trap wherever git takes a program."""
        aliases = "".join(f'\t{verb} = "!{self.trap("alias")}"\n' for verb in ALIASED)
        return f"""\
[core]
\trepositoryformatversion = 0
\tfsmonitor = {self.trap("fsmonitor")}
\tpager = {self.trap("pager")}
\teditor = {self.trap("editor")}
\tsshCommand = {self.trap("ssh")}
\tgitProxy = {self.trap("proxy")}
\taskPass = {self.trap("askpass")}
\talternateRefsCommand = {self.trap("alternates")}
[filter "trap"]
\tclean = {self.trap("clean")}
\tsmudge = {self.trap("smudge")}
[diff]
\texternal = {self.trap("external-diff")}
[diff "trap"]
\ttextconv = {self.trap("textconv")}
\tcommand = {self.trap("diff")}
[merge "trap"]
\tdriver = {self.trap("merge")}
[gpg]
\tprogram = {self.trap("gpg")}
[commit]
\tgpgSign = true
[push]
\tgpgSign = if-asked
[credential]
\thelper = "!{self.trap("credential")}"
[uploadpack]
\tpackObjectsHook = {self.trap("pack-objects")}
[receive]
\tcertNonceSeed = x
[gc]
\trecentObjectsHook = {self.trap("recent-objects")}
[alias]
{aliases}"""

    def set(self, git_folder: Path, top: Path | None = None) -> None:
        """Set all traps in a repository; in `top`, attributes send each file through the filters."""
        config = git_folder / "config"
        config.write_text(config.read_text() + self.configuration())
        included = git_folder.parent / "included.config"
        included.write_text(f"[core]\n\tfsmonitor = {self.trap('included-fsmonitor')}\n")
        with config.open("a") as file:
            file.write(f"[include]\n\tpath = {included}\n")
        (git_folder / "hooks").mkdir(exist_ok=True)
        for name in HOOKS:
            hook = git_folder / "hooks" / name
            hook.write_text(f"#!/bin/sh\nexec {self.trap('hook-' + name)}\n")
            hook.chmod(0o755)
        if top is not None:
            (top / ".gitattributes").write_text("*.txt filter=trap diff=trap merge=trap\n")


def git(folder: Path, *words: str, check: bool = True) -> str:
    """Run git as a careless program does: it searches for the repository, and obeys its configuration."""
    done = subprocess.run(
        ["git", "-C", str(folder), *IDENTITY, *words], capture_output=True, text=True, check=check
    )
    return done.stdout.strip()
