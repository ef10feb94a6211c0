"""The user's own `git`, and the only function that runs it.

A repository may name programs in its configuration, and a workspace may have a repository that plain edits
made. So a call names the repository, and never lets git search for one. It overrides the settings that name
a program. Only the verbs in `VERBS` are run: none of them reads the content of a work tree, so no filter,
no text conversion and no external diff runs, and an alias cannot replace a verb of git's own.

The user's variables and global configuration stay, because they have the user's ssh, proxies, certificates
and credential helpers.

Imports as little as it can, because a person waits for the start of a caller.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import NamedTuple

from editd.system.git_paths import git_folder

GIT_SECONDS_MAX = 120.0  # of one call
WORDS_MAX = 1000  # characters of git's own words in a failure
NO_FOLDER = os.devnull  # as a folder of hooks: nothing can be in it

VERBS = frozenset({"check-ignore", "config", "fetch", "ls-files", "ls-remote", "push", "repack"})
PROTOCOLS = ("file", "git", "ssh", "https", "http")
_OVERRIDES = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", NO_FOLDER),
    ("core.pager", "cat"),
    ("core.alternateRefsCommand", "true"),
    ("safe.bareRepository", "explicit"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
_OF_A_RECEIVER = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", NO_FOLDER),
    ("core.alternateRefsCommand", "true"),
    ("receive.autogc", "false"),
    ("receive.denyCurrentBranch", "refuse"),
)
_OF_ONE_REPOSITORY = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_ATTR_SOURCE", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_DIR",
        "GIT_EXTERNAL_DIFF", "GIT_GLOB_PATHSPECS", "GIT_GRAFT_FILE", "GIT_ICASE_PATHSPECS",
        "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_LITERAL_PATHSPECS", "GIT_NAMESPACE",
        "GIT_NOGLOB_PATHSPECS", "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX",
        "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
    }
)  # fmt: skip


class GitMissing(Exception):
    """There is no `git` in the PATH."""


_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s'\"]*@")  # a password may have an @ as well
_QUERY = re.compile(r"(https?://[^?#\s'\"]*)[?#][^\s'\"]*")


class GitFailed(Exception):
    """Git could not be started, reported a failure, or took too long."""


class WorkTree(NamedTuple):
    """A work tree of the user's: git's own folder, and the folder that has the files."""

    git_folder: str
    top: str


def run_git(
    git_folder: str,
    verb: str,
    *arguments: str,
    top: str | None = None,
    folder: str | None = None,
    stdin: bytes = b"",
    settings: tuple[tuple[str, str], ...] = (),
    variables: dict[str, str] | None = None,
    seconds: float = GIT_SECONDS_MAX,
    statuses: tuple[int, ...] = (0,),
) -> bytes:
    """Run git on one repository, and return its output. Raises GitMissing, GitFailed.

    `top` is the work tree's top, and `folder` the current folder. `variables` are added to the environment,
    and `statuses` are the exit statuses of a success. Git's own children are killed with it.
    """
    assert verb in VERBS, f"git {verb} may run programs of a repository"
    overrides = [word for key, value in (*settings, *_OVERRIDES) for word in ("-c", f"{key}={value}")]
    work_tree = [] if top is None else ["--work-tree", top]
    argv = ["git", "--no-pager", *overrides, "--git-dir", git_folder, *work_tree, verb, *arguments]
    try:
        process = subprocess.Popen(
            argv, cwd=folder or git_folder, env=git_environment() | (variables or {}), start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError as error:
        if error.filename == "git":
            raise GitMissing from None
        raise GitFailed(f"git could not be started: {error}.") from error
    except OSError as error:
        raise GitFailed(f"git could not be started: {error}.") from error
    with process:
        try:
            output, errors = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise GitFailed(f"git {verb} did not end within {seconds:g} s.") from None
        finally:
            if process.returncode is None:
                _kill(process)
    if process.returncode not in statuses:
        words = (errors + output).decode("utf-8", "replace").strip()
        words = without_credentials(words)[-WORDS_MAX:]
        raise GitFailed(f"git {verb} failed: {words or process.returncode}")
    return output


def without_credentials(text: str) -> str:
    """Return the text with its URLs as they may be shown: without user, password, and query of the web."""
    return _QUERY.sub(r"\1", _CREDENTIALS.sub(r"\1", text))


def git_environment() -> dict[str, str]:
    """Return the user's variables for git, except any that name a repository. Git asks nothing."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_ONE_REPOSITORY}
    return kept | {
        "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS),
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "SSH_ASKPASS_REQUIRE": "never",
        "LC_ALL": "C",
    }


def receiver_without_hooks() -> str:
    """Return the command that receives a push in a repository on this machine, and runs nothing of it."""
    return " ".join(["git", *(f"-c {key}={value}" for key, value in _OF_A_RECEIVER), "receive-pack"])


def work_tree_of(folder: str) -> WorkTree | None:
    """Return the work tree that has `folder`, by the nearest `.git` from there upwards; None without one.

    A folder that is itself like a repository is none: plain edits can make it so.
    """
    top = folder
    while True:
        own = git_folder(os.fsencode(os.path.join(top, ".git")))
        if own is not None and os.path.lexists(os.path.join(own, b"HEAD")):
            return WorkTree(os.fsdecode(own), top)
        above = os.path.dirname(top)
        if above == top:
            return None
        top = above


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill git and the programs that it started: they are in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
