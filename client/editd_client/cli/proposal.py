"""The verb `proposal`: edits that wait for a reviewer, and the decisions about them."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, cast

import click

from editd_client.cli import output, proposal_text
from editd_client.cli.asker import OptionAsker, converse
from editd_client.cli.edits import report
from editd_client.cli.options import as_json
from editd_client.errors import EditdError, refusal
from editd_client.review.choices import HunkChoices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from editd.wire.messages import ProposalGetResult, ProposalState
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client
    from editd_client.review.choices import Choice
    from editd_client.trial import ProposedContent

STATES = ("draft", "open", "landed", "partly", "rejected", "withdrawn", "expired", "moot")
ANSWERS = {
    "y": "land this hunk",
    "n": "leave this hunk open",
    "a": "land this hunk and all later hunks of the file",
    "d": "leave this hunk and all later hunks of the file open",
    "q": "quit; leave this hunk and the remaining ones open",
    "?": "print this help",
}
_NAME = re.compile(r"[Pp]?(\d{1,18})")


class _ProposalName(click.ParamType[int]):
    """A proposal: `7` or `P7`."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _NAME.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a proposal, such as 7 or P7.", param, ctx)
        return int(match[1])


number = click.argument("proposal", type=_ProposalName(), metavar="N")


class _Numbers(click.ParamType["tuple[int, ...]"]):
    """Hunks by their numbers: `2` or `1,3-5`."""

    name = "K"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers: list[int] = []
        for part in str(value).split(","):
            first, _, last = part.partition("-")
            if not first.isdecimal() or not (last or first).isdecimal() or len(part) > 20:
                self.fail(f"{value!r} is not a list of hunks, such as 1,3-5.", param, ctx)
            numbers += range(int(first), min(int(last or first), int(first) + 100_000) + 1)
        return tuple(numbers)


hunks_option = click.option(
    "--hunk", "--hunks", "hunks", type=_Numbers(), multiple=True, metavar="K",
    help="Only these hunks, by their numbers in `show`, such as 1,3-5. Repeatable.",
)  # fmt: skip
comment_option = click.option("-m", "--comment", metavar="TEXT", help="Comment for the author.")


@click.group("proposal")
def proposal_verb() -> None:
    """List, show and decide edits that wait for a reviewer.

    An edit becomes a proposal with --propose, or if a rule of the configuration (`review.rule`) asks for
    it. Nothing of it is in the files before it is approved.

    \b
    Examples:
      editctl proposal list
      editctl proposal show 7
      editctl proposal approve 7
      editctl proposal try 7 -- pytest -q
    """


@proposal_verb.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES), help="Only this state. Repeatable."
)
@click.option("--all", "everything", is_flag=True, help="Also decided proposals.")
@click.option("--of", "session", metavar="SESSION", help="Only of this session.")
@click.option("--path", metavar="PATH", help="Only proposals that change this file or folder.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, help="Number of proposals (default: 50)."
)
@as_json
@click.pass_obj
def list_proposals(
    invocation: Invocation, /, *, states: tuple[str, ...], everything: bool, **options: Any
) -> None:
    """List the proposals that wait for a decision, newest first."""
    wanted = cast("Sequence[ProposalState] | None", states or (STATES if everything else None))
    path = None if options["path"] is None else invocation.path(options["path"])
    with invocation.client(attach=False) as client:
        result = client.proposal_list(
            state=wanted,
            session=options["session"],
            path=path,
            limit=options["limit"],
        )
    if invocation.say_json(result):
        return
    for proposal in result.proposals:
        output.echo(proposal_text.one_line(proposal))
    if not result.proposals:
        output.echo("no proposals" if wanted else "no proposal waits for a decision")
    if result.more:
        output.print_error("hint: there are more; -n shows more of them.")


@proposal_verb.command("show")
@number
@click.option("--revision", type=click.IntRange(min=1), metavar="K", help="An earlier revision.")
@click.option("--path", "paths", multiple=True, metavar="PATH", help="Only this file. Repeatable.")
@click.option(
    "-U", "--context", type=click.IntRange(0, 1000), default=3, help="Lines around a hunk (default: 3)."
)
@as_json
@click.pass_obj
def show_proposal(
    invocation: Invocation, proposal: int, revision: int | None, paths: tuple[str, ...], context: int
) -> None:
    """Show a proposal on the present files, hunk by hunk.

    A hunk's mark says that it conflicts with later changes (!), is in the file already (=), has
    landed (✓) or was rejected (✗).
    """
    named = [invocation.path(path) for path in paths] or None
    with invocation.client(attach=False) as client:
        shown = client.proposal_get(proposal, revision=revision, paths=named, context=context)
    if not invocation.say_json(shown):
        output.page(proposal_text.lines_of(shown))


@proposal_verb.command("approve")
@number
@hunks_option
@click.option("-i", "--interactive", is_flag=True, help="Ask for each hunk, as `git add -p` does.")
@click.option("--view", metavar="TOKEN", help="Token of the view that was shown. Does not ask then.")
@click.option("--reject-rest", is_flag=True, help="Reject the other hunks. Without it they stay open.")
@comment_option
@click.option("--message", metavar="TEXT", help="Message of the transaction, in place of the author's.")
@click.option("--dry-run", is_flag=True, help="Show what would land, without landing it.")
@as_json
@click.pass_obj
def approve(
    invocation: Invocation, /, *, proposal: int, hunks: tuple[tuple[int, ...], ...], **options: Any
) -> None:
    """Land a proposal, or some of its hunks, as one transaction by its author.

    Shows the proposal and asks. What has changed between the question and the answer does not land. With
    --view, does not ask: the token is from `show --json`, and anything that has changed since is
    refused.
    """
    is_asking = options["view"] is None and not options["dry_run"]
    if is_asking and (invocation.json or not output.has_terminal()):
        raise click.UsageError(
            "Without a terminal to ask on, --view needs the token of `proposal show --json`."
        )
    with invocation.reviewer() as client:
        shown = _open_proposal(client, proposal)
        view = options["view"] or shown.view
        chosen = _hunk_ids(shown, hunks)
        if options["interactive"]:
            chosen = _ask_each(shown, chosen)
        elif is_asking:
            output.page(proposal_text.lines_of(shown))
            subject = "proposal" if chosen is None else f"{len(chosen)} of its hunks"
            if not click.confirm(f"Land {'this ' if chosen is None else ''}{subject}?"):
                output.echo("Nothing was landed.")
                return
        if chosen == []:
            output.echo("No hunk was chosen. Nothing was landed.")
            return
        result = client.proposal_approve(
            proposal,
            hunks=chosen,
            view=view,
            rest="reject" if options["reject_rest"] else "keep",
            comment=options["comment"],
            message=options["message"],
            request_id=secrets.token_hex(16),
            dry_run=options["dry_run"],
        )
    if not invocation.say_json(result):
        from editd.wire.messages import ApplyResult

        made = ApplyResult(transaction=result.transaction, files=result.files, warnings=result.warnings)
        report(invocation, made, dry_run=options["dry_run"])
        output.echo(proposal_text.one_line(result.proposal))


@proposal_verb.command("reject")
@number
@hunks_option
@comment_option
@as_json
@click.pass_obj
def reject(
    invocation: Invocation, proposal: int, hunks: tuple[tuple[int, ...], ...], comment: str | None
) -> None:
    """Reject a proposal, or some of its hunks. `reopen` takes that back."""
    from editd_client.conversations.decision import reject as conversation

    with invocation.reviewer() as client:
        chosen = _hunk_ids(_open_proposal(client, proposal), hunks)
        asker = OptionAsker(client, comment=comment)
        result = converse(conversation(asker, proposal, hunks=chosen, request_id=secrets.token_hex(16)))
    _report(invocation, result)


@proposal_verb.command("comment")
@number
@click.argument("text")
@click.option("--hunk", type=click.IntRange(min=1), metavar="K", help="About this hunk.")
@click.option("--path", metavar="PATH", help="About this file.")
@click.option("--line", type=click.IntRange(min=1), metavar="N", help="About this line of the file.")
@as_json
@click.pass_obj
def comment(
    invocation: Invocation, proposal: int, text: str, hunk: int | None, path: str | None, line: int | None
) -> None:
    """Add a comment, which the author is told."""
    from editd_client.conversations.comment import comment as conversation

    if line is not None and path is None:
        raise click.UsageError("--line goes with --path.")
    named = None if path is None else invocation.path(path)
    with invocation.client() as client:
        chosen = None if hunk is None else _hunk_ids(client.proposal_get(proposal), ((hunk,),))
        about = chosen[0] if chosen else None
        asker = OptionAsker(client, comment=text)
        result = converse(conversation(asker, proposal, hunk=about, path=named, line=line))
    _report(invocation, result)


@proposal_verb.command("withdraw")
@number
@as_json
@click.pass_obj
def withdraw(invocation: Invocation, proposal: int) -> None:
    """Take back a proposal of your own session."""
    with invocation.client() as client:
        _report(invocation, client.proposal_withdraw(proposal))


@proposal_verb.command("submit")
@number
@as_json
@click.pass_obj
def submit(invocation: Invocation, proposal: int) -> None:
    """Open a draft of your own session for review."""
    with invocation.client() as client:
        _report(invocation, client.proposal_submit(proposal))


@proposal_verb.command("reopen")
@number
@as_json
@click.pass_obj
def reopen(invocation: Invocation, proposal: int) -> None:
    """Make a new proposal of one that was rejected, withdrawn or has expired."""
    with invocation.client() as client:
        _report(invocation, client.proposal_reopen(proposal))


@proposal_verb.command("wait")
@number
@click.option("--timeout", type=float, default=60.0, metavar="SECONDS", help="Time to wait (default: 60).")
@as_json
@click.pass_obj
def wait(invocation: Invocation, proposal: int, timeout: float) -> int:
    """Wait for the decision about a proposal.

    The exit status is 0 if something of it has landed, and 1 otherwise.
    """
    with invocation.client(attach=False) as client:
        result = client.proposal_wait(proposal, timeout=timeout)
    if not invocation.say_json(result):
        output.echo(proposal_text.one_line(result.proposal))
        for made in result.transactions:
            output.echo(output.one_line(made))
        for comment in result.comments:
            output.echo(f"  {output.plain(comment.by.actor)}: {output.plain(comment.text)}")
    return 0 if result.state in ("landed", "partly", "moot") else 1


@proposal_verb.command("try")
@number
@hunks_option
@as_json
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.pass_obj
def try_proposal(
    invocation: Invocation, proposal: int, hunks: tuple[tuple[int, ...], ...], command: tuple[str, ...]
) -> int:
    """Run a command on the files as the proposal would leave them.

    The command sees the workspace with the proposal in it. What it writes there is thrown away
    afterwards, and no process that it has started outlives it. `editctl` exits with its status, and the
    daemon keeps its result with the proposal. It runs in an overlay over the workspace, or where the
    system has none, in a copy of what git does not ignore.

    \b
    Examples:
      editctl proposal try 7 -- pytest -q
      editctl proposal try 7 --hunks 1,3 -- make test
    """
    import shlex

    from editd_client.trial import TooMuchToCopy, run_trial

    with invocation.client() as client:
        shown = client.proposal_get(proposal, content=True)
        chosen = _hunk_ids(shown, hunks)
        files = list(_trial_files(client, shown, chosen))
        try:
            done = run_trial(invocation.workspace.root, files, command)
        except TooMuchToCopy:
            raise refusal(
                "too_large",
                "The workspace is too large to copy, and this system has no overlay.",
                hint="`editctl proposal checkout` makes a copy of your choice.",
            ) from None
        with contextlib.suppress(EditdError) if chosen is not None else contextlib.nullcontext():
            client.proposal_check(
                proposal, shown.view, shlex.join(command)[:200],
                exit=done.exit, seconds=done.seconds, output=done.output, hunks=chosen,
            )  # fmt: skip
    return done.exit


@proposal_verb.command("checkout")
@number
@click.argument("folder", type=click.Path(file_okay=False), metavar="DIR")
@hunks_option
@click.pass_obj
def checkout(invocation: Invocation, proposal: int, folder: str, hunks: tuple[tuple[int, ...], ...]) -> None:
    """Write a copy of the workspace with the proposal in it to a new folder."""
    from editd_client.trial import TooMuchToCopy, copy_workspace

    with invocation.client(attach=False) as client:
        shown = client.proposal_get(proposal, content=True)
        files = list(_trial_files(client, shown, _hunk_ids(shown, hunks)))
    try:
        copy_workspace(invocation.workspace.root, os.path.abspath(folder), files)
    except FileExistsError:
        raise refusal("file_exists", f"{folder} is not empty.", hint="Name a new folder.") from None
    except TooMuchToCopy:
        raise refusal("too_large", "The workspace is too large to copy.") from None
    output.echo(f"P{proposal} is in {folder}")


def _open_proposal(client: Client, proposal: int) -> ProposalGetResult:
    """Return a proposal to decide about. Raises EditdError (`decided`), before a question is asked."""
    shown = client.proposal_get(proposal)
    if shown.state != "open":
        state = "a draft" if shown.state == "draft" else shown.state
        raise refusal(
            "decided", f"P{proposal} is {state}.", hint=f"`editctl proposal show {proposal}` shows it.",
            data={"proposal": proposal, "state": shown.state},
        )  # fmt: skip
    return shown


def _report(invocation: Invocation, result: Any) -> None:
    if not invocation.say_json(result):
        output.echo(proposal_text.one_line(result.proposal))


def _hunk_ids(shown: ProposalGetResult, numbers: Iterable[Sequence[int]]) -> list[str] | None:
    """Return the ids of the hunks with these numbers, or None for all.

    Raises EditdError (`invalid_params`) for a number that the proposal does not have.
    """
    wanted = {number for some in numbers for number in some}
    if not wanted:
        return None
    ids = {hunk.number: hunk.hunk for file in shown.files for hunk in file.hunks}
    if missing := sorted(wanted - ids.keys()):
        raise refusal(
            "invalid_params",
            f"P{shown.proposal} has no hunk {missing[0]}.",
            hint=f"`editctl proposal show {shown.proposal}` lists its hunks.",
        )
    return [ids[number] for number in sorted(wanted)]


def _ask_each(shown: ProposalGetResult, chosen: Sequence[str] | None) -> list[str]:
    """Ask for each hunk that fits whether to land it. Return the ids of those to land."""
    output.check_terminal("-i")
    pieces = [
        (file, hunk)
        for file in shown.files
        for hunk in file.hunks
        if hunk.state == "fits" and (chosen is None or hunk.hunk in chosen)
    ]
    choices = HunkChoices(shown)
    choices.set_all("open")
    decided: dict[str, Choice] = {}  # by path, after `a` and `d`
    for at, (file, hunk) in enumerate(pieces, 1):
        choice = decided.get(file.path)
        if choice is None:
            if at == 1 or pieces[at - 2][0] is not file:
                output.echo(output.paint(proposal_text.file_name(file), None, bold=True))
            for line in proposal_text.hunk_lines(hunk):
                output.echo(line)
            answer = _answer(f"({at}/{len(pieces)}) Land this hunk [{','.join(ANSWERS)}]? ")
            if answer == "q":
                break
            choice = "approve" if answer in "ya" else "open"
            if answer in "ad":
                decided[file.path] = choice
        choices.set(hunk.hunk, choice)
    return choices.hunks_with("approve")


def _answer(prompt: str) -> str:
    """Ask until an answer is one of ANSWERS. The end of the input quits."""
    while True:
        answer = output.ask_key(prompt)
        if answer in ANSWERS and answer != "?":
            return answer
        output.print_keys(ANSWERS)


def _trial_files(
    client: Client, shown: ProposalGetResult, chosen: Sequence[str] | None
) -> Iterator[ProposedContent]:
    """Yield the files as the chosen hunks, or all that fit, would leave them."""
    from editd_client.trial import ProposedContent

    if chosen is not None:
        landing = client.proposal_approve(shown.proposal, hunks=chosen, view=shown.view, dry_run=True)
        for made in landing.files:
            content = made.content if isinstance(made.content, str) else None
            mode = made.mode if isinstance(made.mode, str) else None
            yield ProposedContent(made.path, _bytes(content), mode)
            if isinstance(made.from_, str):
                yield ProposedContent(made.from_, None)
        return
    for file in shown.files:
        yield ProposedContent(file.path, _bytes(file.new if isinstance(file.new, str) else None), file.mode)
        if isinstance(file.from_, str):
            yield ProposedContent(file.from_, None)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")
