"""The daemon: `start`, `stop`, `status`, `socket` and `settle`."""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from editd.wire.messages import Result, Status
from editd_client import caller
from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.errors import EditdError, Unreachable
from editd_client.prepared_call import call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.wire.messages import CheckResult, StatusResult
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client


@click.command("start")
@as_json
@click.pass_obj
def start_verb(invocation: Invocation) -> None:
    """Start the daemon, if none runs.

    Other verbs start it, too. Use this in a script to be sure, or to wait for the start separately.
    A submodule or a nested repository has the daemon of the workspace around it. If git ignores
    the folder there, it gets a separate daemon.

    \b
    Examples:
      editctl start
      editctl -C ~/src/project start
    """
    invocation.cover(again=True)
    with invocation.client() as client:
        status = client.status()
    invocation.say(status, f"editd {status.version} (pid {status.pid}) serves {output.plain(status.root)}")


class Pid(Result):
    """The only field of a daemon's status that is needed, so that a daemon of any version can be stopped."""

    pid: int


@click.command("stop")
@as_json
@click.pass_obj
def stop_verb(invocation: Invocation) -> None:
    """Stop the daemon, after it has finished its running requests.

    Returns when the process has exited. Nothing is lost: the next `editctl` that needs a daemon
    starts one. If none runs, exits with 3.

    \b
    Examples:
      editctl stop
      editctl stop || true     # in a script: also if none runs
    """
    with invocation.client(start=False) as client:
        pid = client.ask(call(Status(), Pid)).pid
        if not pid:  # the ordinary socket beside a reviewers' socket names no process
            client.shutdown()
            return
        with wait_for_exit(pid) as wait:
            client.shutdown()
            wait()
    invocation.say({}, f"editd (pid {pid}) has ended")


MIB = 1024 * 1024
TROUBLED = ("holding", "partial", "rescanning", "down")  # states of the watcher to report
BYTES = ("bytes", "quota", "proposals", "unsaved")


@click.command("status")
@click.option(
    "-v", "--verbose", is_flag=True, help="The watcher, journal, history, socket and optional parts as well."
)
@as_json
@click.pass_obj
def status_verb(invocation: Invocation, verbose: bool) -> None:
    """Show the status of the daemon and the workspace.

    Starts no daemon. If none runs, exits with 3.

    \b
    Examples:
      editctl status
      editctl status -v
      editctl status --json | jq .head
      editctl status >/dev/null && echo running
    """
    with invocation.client(start=False) as client:
        status = client.status()
    if not invocation.say_json(status):
        inside = (
            {"socket": invocation.workspace.socket_path, "commands": caller.description()} if verbose else {}
        )
        for title, value in _rows(status, inside):
            output.echo(output.paint(f"{title:<12}", "cyan") + output.plain(value))


def _missed_rows(status: StatusResult) -> Iterator[tuple[str, str]]:
    """Yield a row for each agent with a call whose beginning or end did not come."""
    for agent in status.agents:
        if agent.missed:
            missed = f"{agent.missed} call{'s' * (agent.missed != 1)} missed"
            yield "agent", f"{agent.session}: {missed}, so that changes may be recorded as outside"


def _rows(status: StatusResult, inside: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the usual rows; with `inside`, also the internals."""
    yield "workspace", status.root
    files = status.watcher.get("files") if status.state == "scanning" else None
    scanned = f", {files:,} files so far" if files else ""
    yield "state", status.state + scanned + (f": {status.reason}" if status.reason else "")
    yield "head", f"transaction {status.head}" if status.head else "the baseline, no changes yet"
    yield "daemon", f"editd {status.version}, pid {status.pid}, up {_duration(status.uptime)}"
    if inside or status.sessions or status.leases:
        yield "sessions", f"{status.sessions}, leases {status.leases}"
    yield from _missed_rows(status)
    if status.documents:
        yield "unsaved", f"{status.documents} in editors"
    if inside:
        yield "clients", str(status.clients)
        yield "watcher", _pairs(status.watcher)
        yield "journal", _pairs(status.journal)
        yield "history", _pairs({name: fact for name, fact in status.history.items() if name != "excluded"})
        yield from inside.items()
    elif status.watcher.get("state") in TROUBLED:
        yield "watcher", str(status.watcher["state"])
    yield from _history_rows(status.history, is_full=not inside and bool(status.history.get("is_full")))
    if status.config["problem"]:
        yield "config", f"invalid, the previous one stays in force: {status.config['problem']}"
    if status.config["restart"]:
        yield "config", f"waiting for a restart: {', '.join(status.config['restart'])}"
    if status.proposals:
        yield "proposals", f"{status.proposals} waiting for a reviewer"
    yield from _remote_rows(status.remote or {})
    if status.review_socket is not None:
        yield "review", f"decisions are taken on {status.review_socket}"
    for hook in status.hooks:
        failed = (
            ""
            if hook["failure"] is None
            else f", failed last at {output.local_time(hook['failure']['time'])}"
        )
        yield "hook", f"{hook['name']}, has run {hook['runs']} times{failed}"
    if status.outer is not None:
        yield "inside", f"{status.outer}, a workspace that leaves this folder to this daemon"
    if inside:
        yield from _part_rows(status)
    if missing := status.system.get("missing"):
        yield "does without", ", ".join(missing)
    for name, sentences in (
        ("weaker", status.weaker), ("not covered", status.uncovered), ("notice", status.notices),
    ):  # fmt: skip
        yield from ((name, sentence) for sentence in sentences)


def _part_rows(status: StatusResult) -> Iterator[tuple[str, str]]:
    """Yield the optional parts in two rows. Those that cannot be used are among the rows `weaker`."""
    from editd.parts import PARTS, TOOLS

    for title, group in (("parts", PARTS), ("tools", TOOLS)):
        names = [part.name for part in status.parts if part.group == group and part.error is None]
        yield title, ", ".join(names) or "none"


def _remote_rows(remote: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows about other hosts that are worth a look: no exchange, and what they do not get."""
    if remote.get("state", "current") not in ("current", "behind"):
        yield "hosts", remote["state"] + (f": {remote['error']}" if remote["error"] else "")
    for seq, reason in remote.get("reasons", {}).items():
        yield "kept back", f"{seq}: {reason}"


def _history_rows(history: dict[str, Any], *, is_full: bool) -> Iterator[tuple[str, str]]:
    """Yield the rows about the history that are worth a look: it is full, or leaves files out."""
    if is_full:
        yield "history", "full, edits and proposals are refused: `editctl gc` frees space"
    if (excluded := history.get("excluded", {})).get("count"):
        yield "excluded", _excluded(excluded)


def _excluded(facts: dict[str, Any]) -> str:
    """Return the files whose contents the history does not keep, with the contents that an undo still has."""
    more = facts["count"] - len(facts["files"])
    named = ", ".join(facts["files"]) + (f" and {more} more" if more else "")
    kept = f"; {facts['kept']} contents are kept for an undo" if facts["kept"] else ""
    return f"{named}: their contents are not in the history, and reach no other host{kept}"


def _pairs(facts: dict[str, Any]) -> str:
    """Return facts as `name value`, bytes in MiB, a true one by its name only; omit false and None."""
    return ", ".join(
        _pair(name, value) for name, value in facts.items() if value is not None and value is not False
    )


def _pair(name: str, value: object) -> str:
    if value is True:
        return name.removeprefix("is_")
    if name in BYTES and isinstance(value, int):
        return f"{name} {value / MIB:.1f} MiB".removeprefix("bytes ")
    return f"{name} {value}"


def _duration(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if hours < 2:
        return f"{minutes} min"
    return f"{hours} h" if days < 2 else f"{days} days"


@click.command("socket")
@as_json
@click.pass_obj
def socket_verb(invocation: Invocation) -> None:
    """Print the path of the daemon's socket.

    Starts the daemon if none answers, so that a program can connect to the printed path.

    \b
    Examples:
      echo '{"jsonrpc": "2.0", "id": 1, "method": "status"}' | socat - UNIX:"$(editctl socket)"
      nvim --cmd "let g:editd = sockconnect('pipe', '$(editctl socket)', {'rpc': v:true})"
    """
    invocation.client().close()
    path = invocation.workspace.socket_path
    invocation.say({"socket": path}, path)


@click.command("settle")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Time limit (default: 60).")
@as_json
@click.pass_obj
def settle_verb(invocation: Invocation, timeout: float | None) -> None:
    """Wait until the history has all changes of other programs.

    Returns when every earlier change of a file is in the history, as a transaction by `outside`. In a
    new workspace, also waits for the baseline. Afterwards `log` and `diff` are complete.

    \b
    Examples:
      git pull && editctl settle && editctl log -n 1
      editctl settle --timeout 5
    """
    with invocation.client() as client:
        result = client.settle(timeout)
    text = f"settled at transaction {result.head}" if result.head else "settled at the baseline"
    invocation.say(result, text)


LOOK_SECONDS = 0.01  # between two checks, if the kernel has no pidfd
END_SECONDS_MAX = 60.0  # a large transaction, or a repair, on a slow disk may be running


@contextmanager
def wait_for_exit(pid: int) -> Iterator[Callable[[], None]]:
    """Yield a function that waits for the exit of that process, and raises Unreachable after a minute.

    Enter it before the request to exit: the pidfd then refers to this daemon even if the pid is reused.
    """
    descriptor = _descriptor_of(pid)

    def wait() -> None:
        has_ended = _has_ended_soon(pid) if descriptor is None else _is_readable(descriptor)
        if not has_ended:
            raise Unreachable(f"The daemon (pid {pid}) did not exit within {END_SECONDS_MAX:.0f} s.")

    try:
        yield wait
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _descriptor_of(pid: int) -> int | None:
    """Return a pidfd, or None if the kernel (gVisor) has none or a sandbox forbids it."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EACCES):
            raise
        return None


def _is_readable(descriptor: int) -> bool:
    gone = select.poll()  # not select(2), which takes no descriptor beyond 1023
    gone.register(descriptor, select.POLLIN)
    return bool(gone.poll(END_SECONDS_MAX * 1000))


def _has_ended_soon(pid: int) -> bool:
    """Poll for the process by its pid, which the kernel does not reuse that soon."""
    until = time.monotonic() + END_SECONDS_MAX
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if _is_zombie(pid):
            return True
        time.sleep(LOOK_SECONDS)
    return False


def _is_zombie(pid: int) -> bool:
    """Whether the process has exited, but its parent has not collected its status yet."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[:1] == [b"Z"]
    return False


# ── Care of the history ───────────────────────────────────────────────────────────────────────


PROBLEMS_EXIT_CODE = 4
LOST_SHOWN_MAX = 20


@click.command("check")
@click.option(
    "--repair", is_flag=True, help="Repair the history. Damaged files are moved aside, never deleted."
)
@click.option("--yes", is_flag=True, help="Accept losses of --repair without asking.")
@click.option("--full", is_flag=True, help="Verify again what an earlier check has verified.")
@as_json
@click.pass_obj
def check_verb(invocation: Invocation, repair: bool, yes: bool, full: bool) -> int:
    """Verify that history, journal and files agree.

    Reads each pack, and each transaction since the last check without a problem, as it says. With
    --full, it reads each object and each transaction again.

    Changes nothing. Prints each problem on a line of standard output, and exits with 4 if there is
    one. With --repair, rebuilds a damaged history from the packs (around the damage), the journal,
    the index and the files themselves. Names first what it cannot recover, and asks. Afterwards it
    restarts the daemon and verifies again.

    \b
    Examples:
      editctl check
      editctl check --full             # for example each month
      editctl check --repair
      editctl check --repair --yes     # in a script: accept any loss
    """
    if yes and not repair:
        raise click.UsageError("--yes needs --repair.")
    repaired = _repaired(invocation, yes) if repair else None
    with invocation.client() as client:
        result = client.check(full=full or repair)
    if repaired is not None:
        left = [problem for problem in repaired.problems if problem not in result.problems]
        result = type(result)(
            ok=result.ok and repaired.ok, problems=[*left, *result.problems], repaired=repaired.repaired,
            lost=repaired.lost, aside=repaired.aside,
        )  # fmt: skip
    if not invocation.say_json(result):
        if repaired is not None and not repaired.repaired:
            output.echo("nothing was repaired")
        _say(result)
    return 0 if result.ok else PROBLEMS_EXIT_CODE


def _repaired(invocation: Invocation, yes: bool) -> CheckResult:
    """Have the daemon repair the history, and wait for its exit."""
    with invocation.client(attach=False) as client:
        pid = client.status().pid
        with wait_for_exit(pid) as wait:
            result = _asked(client, yes)
            if result.repaired:
                wait()
    return result


def _asked(client: Client, yes: bool) -> CheckResult:
    """Request the repair. If something would be lost, ask the person on the terminal first."""
    try:
        return client.check(repair=True, lose=yes)
    except EditdError as refusal:
        lost = refusal.data.get("lost")
        if not lost or not sys.stdin.isatty():
            raise
        output.print_error("These cannot be recovered:")
        for sentence in lost[:LOST_SHOWN_MAX]:
            output.print_error(f"  {output.plain(sentence)}")
        if len(lost) > LOST_SHOWN_MAX:
            output.print_error(f"  and {len(lost) - LOST_SHOWN_MAX} more")
        if not click.confirm("Repair anyway?", default=False, err=True):
            raise
    return client.check(repair=True, lose=True)


def _say(result: CheckResult) -> None:
    for sentence in result.repaired:
        output.echo(output.plain(f"repaired: {sentence}"))
    for sentence in result.lost:
        output.echo(output.plain(f"lost: {sentence}"))
    if result.aside is not None:
        output.echo(output.plain(f"the damaged files are in {result.aside}"))
    for problem in result.problems:
        output.echo(output.plain(problem))
    if result.known is not None and result.known_time is not None:
        earlier = output.local_time(result.known_time)
        output.echo(f"up to transaction {result.known} verified by the check of {earlier}: --full repeats it")
    if result.ok:
        output.echo("history, journal and files agree")


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Print the space that would be freed, without freeing it.")
@as_json
@click.pass_obj
def gc_verb(invocation: Invocation, dry_run: bool) -> None:
    """Compact the oldest history, and free its space.

    Compacts the transactions beyond `history.keep`. A compacted transaction cannot be shown, read
    or undone any more, but the files stay as they are. Without `history.keep` in the configuration,
    keeps all transactions and frees only unused data.

    \b
    Examples:
      editctl config set history.keep '{ age = "90d", count = 10000, bytes = "2GiB" }'
      editctl gc --dry-run
      editctl gc
    """
    with invocation.client() as client:
        result = client.gc(dry_run=dry_run)
    if invocation.say_json(result):
        return
    if result.compacted:
        is_one = result.compacted == 1
        what = "one transaction" if is_one else f"{result.compacted} transactions"
        verb_ = "would be" if dry_run else "is" if is_one else "are"
        output.echo(f"{what} {verb_} compacted: the history begins with {result.oldest}")
    else:
        output.echo("no transaction is beyond the limits of history.keep")
    about = "about " if dry_run else ""
    output.echo(f"{about}{result.freed / MIB:.1f} MiB freed, {result.bytes / MIB:.1f} MiB left")
