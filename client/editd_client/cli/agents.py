"""Agents with their own tools: `integrate`, `hook` and `claim`."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click

from editd_client.agents import NAMES
from editd_client.agents.hook import adapter_of, run
from editd_client.cli import output
from editd_client.cli.options import as_json, parse_time
from editd_client.errors import EditdError, Unreachable, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd_client.agents.integration import Agent, Choices, Integrator, Plan
    from editd_client.cli.invocation import Invocation

SELF_TEST_SECONDS_MAX = 10.0
NOT_DONE = 1


@click.command("integrate")
@click.argument("agents", nargs=-1, type=click.Choice(NAMES), metavar="[AGENT]…")
@click.option("--all", "is_all", is_flag=True, help="Every agent that is found on this machine.")
@click.option("--remove", is_flag=True, help="Remove the integration, and restore each file.")
@click.option("--project", is_flag=True, help="The files of this project (default: yours).")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--no-mcp", is_flag=True, help="Leave the MCP server out.")
@click.option("--no-hooks", is_flag=True, help="Leave the hooks out.")
@click.option("--no-start", is_flag=True, help="Do not let the agent's start start a daemon.")
@click.option(
    "--strict", is_flag=True, help="Refuse any edit of a file that others changed since it was read."
)
@click.option("--dialect", metavar="NAME", help="Another system whose tools the MCP server offers as well.")
@click.option("--yes", is_flag=True, help="Write without a question.")
@as_json
@click.pass_obj
def integrate_verb(
    invocation: Invocation,
    agents: tuple[str, ...],
    is_all: bool,
    remove: bool,
    project: bool,
    dry_run: bool,
    no_mcp: bool,
    no_hooks: bool,
    no_start: bool,
    strict: bool,
    dialect: str | None,
    yes: bool,
) -> int:
    """Have a coding agent's own edits and commands recorded as its own.

    Adds hooks to the settings of the agent, and the MCP server of editd. The hooks announce each edit
    and each command to the daemon. Without an agent, shows which are installed and integrated. Shows the
    diff of each file first and asks; without a terminal it needs --yes. A file that cannot be read is
    left alone, and its lines are printed. docs/integrate.md has a section for each agent.

    \b
    Examples:
      editctl integrate
      editctl integrate codex gemini
      editctl integrate --all --no-mcp --dry-run
      editctl integrate --remove codex
    """
    from editd_client.agents.integration import Choices

    named = [adapter_of(name) for name in dict.fromkeys(agents)]
    if is_all:
        named = [agent for agent in map(adapter_of, NAMES) if _is_found(agent)]
    if not named:
        if is_all or remove:
            raise click.UsageError(
                "Name an agent: no known one is found on this machine." if is_all else "Name an agent."
            )
        return _print_status(invocation)
    choices = Choices(not no_mcp, not no_hooks, not no_start, strict, dialect)
    integrator = _integrator(invocation, choices, project=project)
    plans = [integrator.plan(agent, remove=remove) for agent in named]
    if project and not remove and any(plan.changes for plan in plans):
        output.print_error("hint: Once committed, these hooks run for everybody who works in this project.")
    return _carry_out(invocation, integrator, plans, remove=remove, is_agreed=None if dry_run else yes)


def _carry_out(
    invocation: Invocation,
    integrator: Integrator,
    plans: Sequence[Plan],
    *,
    remove: bool,
    is_agreed: bool | None,
) -> int:
    """Show the plans, ask unless the user has agreed, and write; None for `is_agreed` writes nothing."""
    if not invocation.json:
        _print_plans(plans, remove=remove, is_whole=is_agreed is None or output.has_terminal())
    count = sum(len(plan.changes) for plan in plans)
    is_done = count == 0
    if count and is_agreed is not None:
        is_done = is_agreed or _is_confirmed(count)
        if not is_done:
            output.print_error("editctl: nothing was written")
    for plan in plans if is_done else ():
        _apply(integrator, plan)
    _print_result(invocation, plans, is_done=is_done, remove=remove)
    return NOT_DONE if any(plan.problems for plan in plans) else 0


def _integrator(invocation: Invocation, choices: Choices, *, project: bool) -> Integrator:
    from editd_client.agents.integration import Integrator

    return Integrator(os.path.expanduser("~"), invocation.workspace.root if project else None, choices)


def _is_found(agent: Agent) -> bool:
    folder = os.path.join(os.path.expanduser("~"), agent.settings.folder)
    return shutil.which(agent.settings.program) is not None or os.path.isdir(folder)


def _print_plans(plans: Sequence[Plan], *, remove: bool, is_whole: bool) -> None:
    """Print the diff of each plan, or without a person to read it the counts of its lines."""
    for plan in plans:
        for line in _diff(plan) if is_whole else _summary(plan):
            colour = output.DIFF_COLOURS.get(line[:1])
            output.echo(output.paint(output.plain(line, but="\t"), colour))
        if not plan.changes and not plan.problems:
            state = "not integrated" if remove else "integrated already"
            output.echo(f"{plan.agent.title}: {state}, nothing to change")
        for path, reason, lines in plan.problems:
            output.print_error(f"editctl: {output.plain(path)} was left alone: {output.plain(reason)}.")
            if lines:
                output.print_error(f"hint: Put this in by hand:\n{lines.rstrip()}")


def _summary(plan: Plan) -> Iterator[str]:
    """Yield the path of each file with the numbers of its added and removed lines."""
    for change in plan.changes:
        before = (change.before or b"").splitlines()
        after = (change.after or b"").splitlines()
        signs = [line[:1] for line in difflib.ndiff(list(map(repr, before)), list(map(repr, after)))]
        yield f"{plan.agent.title}: {change.path}, +{signs.count('+')} -{signs.count('-')} lines"


def _diff(plan: Plan) -> Iterator[str]:
    for change in plan.changes:
        before = (change.before or b"").decode(errors="backslashreplace").splitlines()
        after = (change.after or b"").decode(errors="backslashreplace").splitlines()
        old = "/dev/null" if change.before is None else change.path
        new = "/dev/null" if change.after is None else change.path
        yield from difflib.unified_diff(before, after, old, new, lineterm="")
        if before == after:
            yield f"{change.path}: only its end or its line ends change"


def _is_confirmed(count: int) -> bool:
    """Ask a person. Raises EditdError without a terminal."""
    if not output.has_terminal():
        raise refusal(
            "permission_denied",
            "These files are yours, and there is no terminal for the question.",
            hint="Add --yes.",
        )
    files = "this file" if count == 1 else f"these {count} files"
    return output.ask_key(f"Write {files} [y,n]? ") == "y"


def _apply(integrator: Integrator, plan: Plan) -> None:
    try:
        integrator.apply(plan)
    except OSError as error:
        raise refusal("io_error", f"{plan.agent.title}: {error.strerror or error}") from error


def _print_result(invocation: Invocation, plans: Sequence[Plan], *, is_done: bool, remove: bool) -> None:
    documents = [
        {
            "agent": plan.agent.name,
            "files": [change.path for change in plan.changes],
            "left": [
                {"path": path, "reason": reason, "lines": lines} for path, reason, lines in plan.problems
            ],
        }
        for plan in plans
    ]
    if invocation.say_json({"done": is_done, "agents": documents}) or not is_done:
        return
    for plan in plans:
        if plan.changes:
            output.echo(f"{plan.agent.title}: {'removed' if remove else 'integrated'}")
            if plan.agent.settings.hint and not remove:
                output.print_error(f"hint: {plan.agent.settings.hint}")


# ── The status ────────────────────────────────────────────────────────────────────────────────


def _print_status(invocation: Invocation) -> int:
    """Print whether each agent is here and integrated, and when the daemon last heard of it."""
    from editd_client.agents.integration import Choices, program

    answers = _self_test(program("editd-hook"), invocation)
    heard = _newest_events(invocation)
    user = _integrator(invocation, Choices(), project=False)
    project = _integrator(invocation, Choices(), project=True)
    rows: list[dict[str, Any]] = [
        {
            "agent": agent.name,
            "title": agent.title,
            "found": _is_found(agent),
            "hooks": user.state(agent, "hooks"),
            "mcp": user.state(agent, "mcp"),
            "project_hooks": project.state(agent, "hooks"),
            "project_mcp": project.state(agent, "mcp"),
            "last": heard.get(agent.name),
        }
        for agent in map(adapter_of, NAMES)
    ]
    if invocation.say_json({"hook": program("editd-hook"), "daemon": answers, "agents": rows}):
        return 0
    for line in _table(rows):
        output.echo(line)
    output.echo(f"{program('editd-hook')}: {answers['text']}")
    for row in rows:
        if "yes" in (row["hooks"], row["project_hooks"]) and row["last"] is None and answers["ok"]:
            agent = adapter_of(row["agent"])
            hint = f" {agent.settings.hint}" if agent.settings.hint else ""
            output.print_error(f"hint: The daemon has heard nothing of {row['title']} yet.{hint}")
    return 0


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    heads = ("agent", "found", "hooks", "mcp", "project", "last heard of")
    cells: list[tuple[str, ...]] = [heads]
    for row in rows:
        project = row["project_hooks"] if row["project_hooks"] != "no" else row["project_mcp"]
        last = row["last"] or {}
        when = f"{output.plain(str(last.get('session', '')))} {output.age(last['time'])}" if last else ""
        when += f", {last['missed']} missed" if last.get("missed") else ""
        presence = "yes" if row["found"] else "no"
        cells.append((row["title"], presence, row["hooks"], row["mcp"], project, when))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()


def _self_test(hook: str, invocation: Invocation) -> dict[str, Any]:
    """Run the hook's own test, as an agent would run the hook."""
    root = invocation.workspace.root
    try:
        done = subprocess.run(
            [hook, "--self-test"], cwd=root, env={**os.environ, "EDITD_WORKSPACE": root},
            capture_output=True, text=True, timeout=SELF_TEST_SECONDS_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"ok": False, "text": str(error)}
    return {"ok": done.returncode == 0, "text": (done.stdout or done.stderr).strip()}


def _newest_events(invocation: Invocation) -> dict[str, dict[str, Any]]:
    """Return the newest event of each agent that the daemon knows of; nothing if none runs."""
    try:
        with invocation.client(start=False) as client:
            known = client.status().agents
    except (EditdError, Unreachable):
        return {}
    newest: dict[str, dict[str, Any]] = {}
    for one in known:  # the last heard first
        newest.setdefault(one.name, {
            "session": one.session, "time": one.time, "event": one.event, "missed": one.missed,
        })  # fmt: skip
    return newest


@click.command("claim")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@click.option(
    "--since", metavar="WHEN", default="10s",
    help="Time of the oldest change to claim, at most 60 seconds ago (default: 10s).",
)  # fmt: skip
@click.option("-m", "--message", metavar="TEXT", default="claimed", help="What made the changes.")
@as_json
@click.pass_obj
def claim_verb(invocation: Invocation, paths: tuple[str, ...], since: str, message: str) -> int:
    """Attribute unannounced changes to your session.

    For an agent or a program without hooks, which can only report its edits afterwards. The changes of
    these files alone, recorded as `outside` since then, become the session's. From then on log, blame,
    rollback and publish treat them as its own. A change that a running command or another agent's tool
    may have made is not claimed. Needs a session, from --session or EDITD_SESSION.

    \b
    Examples:
      editctl claim --session aider-1 src/app.py
      editctl claim --session aider-1 --since 30s -m 'aider: rename' src/app.py src/util.py
    """
    with invocation.client() as client:
        named = [invocation.path(path, for_new=True) for path in paths]
        result = client.claim(named, parse_time(since), message)
        if not invocation.say_json(result):
            seqs = ", ".join(map(str, result.transactions))
            output.echo(f"Claimed: {seqs}." if seqs else "Nothing to claim.")
    return 0


@click.command("hook")
@click.argument("agent", type=click.Choice(NAMES))
@click.option(
    "--strict", is_flag=True, help="Refuse any edit of a file that others changed since it was read."
)
def hook_verb(agent: str, strict: bool) -> None:
    """Announce an event of an agent to the daemon.

    Reads the event from standard input. Agents run this as `editd-hook AGENT`, which starts faster;
    `editctl integrate` adds that. Prints the agent's own form of a refusal, or nothing. Without a daemon
    it does nothing, and the exit code is 0.

    \b
    Examples:
      editctl hook codex < event.json
      EDITD_HOOK_LOG=/dev/stderr editctl hook gemini < event.json
    """
    run(agent, sys.stdin.buffer.read(), is_strict=strict)
