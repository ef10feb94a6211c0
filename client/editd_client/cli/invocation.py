"""One run of `editctl`: its workspace, its paths and its form of output.

Every verb gets it as its first argument. The workspace is located on first use, so that help and
completion need none.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from editd_client.cli import output
from editd_client.errors import Unreachable, refusal
from editd_client.locate import Workspace, current_actor, current_folder, find_workspace

COMPLETE = "_EDITCTL_COMPLETE"  # set by the scripts of `editctl completion`

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import Message
    from editd_client.client import Client


class Invocation:
    """The options of the command line that hold for every verb, and the values derived from them."""

    def __init__(self) -> None:
        self.named: str | None = None
        self.is_nested = False
        self._is_covered = False  # whether `workspace` is known to cover the folder
        self._session: str | None = None  # as the command line names it
        self.json = False
        self.session: str | None = None  # the client acts in it

    @functools.cached_property
    def workspace(self) -> Workspace:
        """The workspace of the command line, or of the daemon at EDITD_SOCKET.

        Prints a hint if neither names one and the current folder is in no repository.
        """
        workspace = find_workspace(self.named, nested=self.is_nested)
        if workspace.found != "named" and (root := self._root_at_socket(workspace)):
            return Workspace(root, "socket")
        if workspace.found == "here":
            hint = f"no git repository here, so the workspace is {workspace.root}; --workspace names another"
            output.print_error(f"hint: {hint}")
        return workspace

    def cover(self, *, again: bool = False) -> None:
        """Act on the repository of the folder, if git ignores it in the workspace around it.

        Starts a daemon to find that out, once or `again`.
        """
        if self._is_covered and not again:
            return
        from editd_client.connect import covering

        self._is_covered = True

        start = self.named or os.environ.get("EDITD_WORKSPACE")
        self.workspace = covering(self.workspace, start, again=again, on_wait=self._say_starting)

    @property
    def _root(self) -> str:
        """The root of the workspace that covers the folder; paths are relative to it."""
        self.cover()
        return self.workspace.root

    def act_in(self, session: str) -> None:
        """Act in this session, also in the commands that are run, with its token from EDITD_TOKEN.

        Raises a usage error if the command line has named another session.
        """
        if self._session not in (None, session):
            import click

            raise click.UsageError(f"--session names two sessions: {self._session} and {session}.")
        self._session = session
        if os.environ.get("EDITD_SESSION", session) != session:
            os.environ.pop("EDITD_TOKEN", None)  # it belongs to another session
        os.environ["EDITD_SESSION"] = session

    def reviewer(self, *, attach: bool = False) -> Client:
        """Return a client that decides by the name of the person; with `attach` in this shell's session."""
        client = self.client(attach=attach)
        if not attach:
            client.hello(current_actor())
        return client

    def client(self, *, start: bool = True, attach: bool = True) -> Client:
        """Return a client of the workspace's daemon. With `start`, start a daemon if none answers.

        Without `start`, the client is on the reviewers' own socket, if the daemon has one: the ordinary one
        tells less. With `start`, it goes there for the requests that need it.
        With `start` and `attach`, the client acts in the session of EDITD_SESSION, otherwise in the
        session of the agent whose shell runs it.

        Raises EditdError (`path_outside`) if the daemon at EDITD_SOCKET has another folder than that named.
        """
        from editd_client.session_state import elsewhere, root_elsewhere

        client = self._connect(start=start)
        if self.workspace.found == "named" and (root := root_elsewhere(client.ask, self.workspace)):
            raise elsewhere(self.workspace, root)
        if start and attach:
            self._act(client)
        return client

    def _act(self, client: Client) -> None:
        """Act in the session of the environment, otherwise of the agent that runs this shell.

        Without one, only introduce the person. Commands that are run act in the session, too. An empty name
        in the environment means no session.
        """
        from editd_client.handles import find_handles, join, token_of

        self.session = os.environ.get("EDITD_SESSION")
        if self.session:
            token = os.environ.get("EDITD_TOKEN") or token_of(self.workspace, self.session)
            if token:
                os.environ["EDITD_TOKEN"] = token
            client.hello(current_actor(), self.session, token)
        elif self.session is None:
            handles = find_handles(self.workspace)
            if joined := join(client, handles):
                self.session, token = joined
                os.environ["EDITD_SESSION"] = self.session
                if token:  # The hooks' session has none.
                    os.environ["EDITD_TOKEN"] = token
            else:
                client.hello(current_actor())
            if len(handles) > 1:
                output.print_error(
                    "hint: the agent that runs this has several sessions. Choose one with --session NAME."
                )

    def _connect(self, *, start: bool) -> Client:
        from editd_client.cli.progress import PatientClient
        from editd_client.connect import check_not_elsewhere, connect_or_start

        if start:
            self.cover()
        path = self.workspace.socket_path
        if start:
            return PatientClient(connect_or_start(self.workspace, on_wait=self._say_starting)[0], path)
        try:
            client = PatientClient(path, path, reconnect=False)
        except Unreachable:
            check_not_elsewhere(self.workspace)
            raise
        client.hello(current_actor())  # the daemon has its other socket at the latest when it answers
        client.go_to_reviewers()
        return client

    def _root_at_socket(self, workspace: Workspace) -> str | None:
        """Return the folder of the daemon at EDITD_SOCKET, if it is not this workspace's."""
        if not os.environ.get("EDITD_SOCKET"):
            return None
        from editd_client.cli.progress import PatientClient
        from editd_client.session_state import root_elsewhere

        try:
            with PatientClient(workspace.socket_path, workspace.socket_path, reconnect=False) as client:
                return root_elsewhere(client.ask, workspace)
        except Unreachable:
            return None

    def absolute(self, argument: str) -> str:
        """Return the absolute path of an argument, relative to the current folder.

        If the current folder is outside the named workspace, the path is relative to the workspace's root.
        Raises EditdError: `invalid_params` for an empty path, `path_outside` if EDITD_SOCKET, perhaps set
        for another purpose, would lead the path into another folder.
        """
        if not argument:
            raise refusal("invalid_params", "A path is empty.")
        root = self._root
        here = current_folder()
        if self.workspace.found == "socket" and not _is_in(here, root) and not os.path.isabs(argument):
            raise refusal(
                "path_outside",
                f"{argument} is not in the workspace {root} of the daemon at EDITD_SOCKET.",
                hint="Unset EDITD_SOCKET, name the workspace (--workspace DIR), or give an absolute path.",
                data={"path": argument},
            )
        absolute = os.path.normpath(os.path.join(here if _is_in(here, root) else root, argument))
        if _is_in(absolute, root):
            return absolute
        if os.path.realpath(absolute) == root:
            return root
        # A link above the workspace may give the same place another name. Keep the last name, because it
        # may be a link in the workspace.
        return os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))

    def path(self, argument: str, *, for_new: bool = False) -> str:
        """Return the path of `absolute` in the daemon's form: relative to the root.

        Raises EditdError (`path_outside`, `not_a_file`) for a path elsewhere, for the root, and for a name
        with a final slash of a file, or with `for_new` of nothing.
        """
        root = self._root
        absolute = self.absolute(argument)
        is_none = not os.path.isdir(absolute) and (for_new or os.path.lexists(absolute))
        if is_none and argument.endswith(("/", "/.")):
            raise refusal(
                "not_a_file",
                f"{argument} is not a folder.",
                hint="Leave out the slash for a file.",
                data={"path": argument},
            )
        if absolute == root:
            raise refusal(
                "not_a_file",
                f"{argument} is the workspace itself.",
                hint="Name a file in it.",
                data={"path": argument},
            )
        if not _is_in(absolute, root):
            raise refusal(
                "path_outside",
                f"{argument} is not in the workspace {root}.",
                hint="--workspace names another workspace.",
                data={"path": argument},
            )
        return os.path.relpath(absolute, root)

    def paths(self, arguments: Sequence[str]) -> list[str] | None:
        """Return the paths for the daemon; None, for the whole workspace, if empty or with the root in it."""
        if any(self.absolute(path) == self._root for path in arguments):
            return None
        return [self.path(path) for path in arguments] or None

    def from_here(self, path: str) -> str:
        """Return a path of the workspace as the command line takes it in the current folder."""
        here = current_folder()
        root = self._root
        return os.path.relpath(os.path.join(root, path), here) if _is_in(here, root) else path

    def check_known(self, client: Client, argument: str) -> None:
        """Raise a usage error for a path that is neither on disk nor in the history."""
        if (
            os.path.lexists(self.absolute(argument))
            or client.log(limit=1, path=self.path(argument)).transactions
        ):
            return
        import click

        raise click.UsageError(f"{argument} is neither on disk nor in the history.")

    def say_json(self, message: Message | dict[str, Any]) -> bool:
        """Print the protocol's result if `--json` is set, and return whether it was."""
        if self.json:
            output.echo(output.json_text(message))
        return self.json

    def say(self, message: Message | dict[str, Any], text: str) -> None:
        """Print the result if `--json` is set, otherwise the text."""
        if not self.say_json(message):
            output.echo(text)

    def _say_starting(self) -> None:
        if sys.stderr.isatty():
            output.print_error(f"editctl: starting the daemon of {self.workspace.root} …")


def _is_in(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")
