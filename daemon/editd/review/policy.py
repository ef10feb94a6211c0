"""The review policy: whether an edit lands, waits for a reviewer, or is refused. Pure.

For each path, a grant or the first rule that fits decides, and the default if there is none. For all paths of
an edit, the strictest decision holds, because the edit is one transaction. Moves are judged at both ends.

Neither a rule nor a grant lets a symlink land that leads out of the workspace: a reviewer decides about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice, command_term
from editd.edits.diff import line_counts
from editd.errors import PermissionDenied
from editd.values.glob import Glob, GlobSet
from editd.values.grant import Grant
from editd.values.path_rules import RuleOnPaths, first_fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from editd.config.schema import AtMost, Config
    from editd.values.content import Change, FileState
    from editd.values.path import WorkspacePath

Action = Literal["land", "ask", "refuse"]

BY_DEFAULT = "default"
"""The name of the rule where `review.default` decides."""


class ReviewRule(Struct, frozen=True):
    """A configured rule. `sessions` are patterns of names; empty means all."""

    name: str
    globs: tuple[Glob, ...]
    action: Action
    at_most: AtMost
    sessions: tuple[str, ...] = ()
    check: str | None = None  # an edit lands only once this check has passed on it

    @property
    def rule(self) -> RuleOnPaths:
        return RuleOnPaths("review", self.action, GlobSet.of(self.globs), sessions=self.sessions or None)


class Ruling(Struct, frozen=True):
    """The decision about an edit. `rule` is the rule's name; None if the edit lands without any rule.

    An edit that has to wait for `checks` becomes a proposal, which lands after them without a reviewer.
    """

    action: Action
    rule: str | None = None
    grants: tuple[tuple[Grant, int], ...] = ()  # the grants that let it land, and the lines that each is for
    checks: tuple[str, ...] = ()


class ReviewPolicy(Struct, frozen=True):
    default: Literal["land", "ask"] = "land"
    rules: tuple[ReviewRule, ...] = ()

    @property
    def is_counted(self) -> bool:
        """Whether a rule counts the edits of the last hour, so that each needs those before it committed."""
        return any(rule.at_most.per_hour is not None for rule in self.rules)

    @property
    def never_asks(self) -> bool:
        """Whether every edit lands, so that no change needs to be judged."""
        return self.default == "land" and not self.rules

    def judge(
        self,
        changes: Sequence[Change[FileState]],
        session: str | None,
        grants: Sequence[Grant],
        landed_by: Callable[[str], int],
        passed: Collection[str] = (),
    ) -> Ruling:
        """Return the decision about the planned `changes` of a session.

        `grants` are those in force. `landed_by` returns the number of edits that a rule let land within the
        last hour. `passed` are the checks that have passed on these changes. Raises PermissionDenied if a
        rule refuses one of the paths.
        """
        parts: dict[str, tuple[ReviewRule | Grant | None, list[Change[FileState]]]] = {}
        for change in changes:
            decider = self._decider(change.path, session, grants)
            name = BY_DEFAULT if decider is None else decider.name
            if isinstance(decider, ReviewRule) and decider.action == "refuse":
                raise PermissionDenied(
                    f"The review rule {name!r} refuses changes of {change.path}.",
                    hint=Advice("Nothing was changed. ", command_term("config"), " shows `review.rule`."),
                    data={"path": change.path.text, "rule": name},
                )
            parts.setdefault(name, (decider, []))[1].append(change)
        rulings = [self._of_part(decider, theirs, landed_by, passed) for decider, theirs in parts.values()]
        asking = [ruling for ruling in rulings if ruling.action == "ask"]
        if asking:
            checks = tuple(dict.fromkeys(name for ruling in asking for name in ruling.checks))
            # A reviewer decides about all of it if one of its parts needs that.
            return next((one for one in asking if not one.checks), replace(asking[0], checks=checks))
        used = tuple(grant for ruling in rulings for grant in ruling.grants)
        return Ruling("land", next((one.rule for one in rulings if one.rule is not None), None), used)

    def _decider(
        self, path: WorkspacePath, session: str | None, grants: Iterable[Grant]
    ) -> ReviewRule | Grant | None:
        rule = first_fitting(self.rules, path, session)
        if rule is not None and rule.action == "refuse":
            return rule
        return first_fitting(grants, path, session) or rule

    def _of_part(
        self,
        decider: ReviewRule | Grant | None,
        changes: Sequence[Change[FileState]],
        landed_by: Callable[[str], int],
        passed: Collection[str],
    ) -> Ruling:
        if decider is None:
            return Ruling("land") if self.default == "land" else Ruling("ask", BY_DEFAULT)
        if any(map(leads_out, changes)):
            return Ruling("ask", decider.name)
        if isinstance(decider, Grant):
            lines = _lines(changes)
            is_enough = (decider.uses is None or decider.uses > 0) and (
                decider.lines is None or lines <= decider.lines
            )
            return Ruling(
                "land" if is_enough else "ask", decider.name, ((decider, lines),) if is_enough else ()
            )
        if decider.action == "land" and _is_within(decider, changes, landed_by):
            if decider.check is not None and decider.check not in passed:
                return Ruling("ask", decider.name, checks=(decider.check,))
            return Ruling("land", decider.name)
        return Ruling("ask", decider.name)


NEVER_ASKS = ReviewPolicy()
"""The policy without a rule. It is compared by identity on the way of each edit."""


def review_policy_of(config: Config) -> ReviewPolicy:
    """Return the review policy of the configuration."""
    rules = tuple(
        ReviewRule(
            rule.name,
            GlobSet(map(Glob.parse, rule.paths)),
            rule.action,
            rule.at_most,
            rule.sessions,
            rule.check,
        )
        for rule in config.review.rule
    )
    policy = ReviewPolicy(config.review.default, rules)
    return NEVER_ASKS if policy == NEVER_ASKS else policy


def leads_out(change: Change[FileState]) -> bool:
    """Return whether a change makes a symlink whose target may be outside of the workspace.

    The text decides: a relative target, with every `..` at its start, stays inside unless another link on the
    way leads out. An absolute target counts as outside.
    """
    after = change.after
    if after is None or not after.is_symlink:
        return False
    names = [name for name in after.content.split(b"/") if name not in (b"", b".")]
    ups = next((count for count, name in enumerate(names) if name != b".."), len(names))
    depth = change.path.raw.count(b"/")
    return after.content.startswith(b"/") or ups > depth or b".." in names[ups:]


def _is_within(
    rule: ReviewRule, changes: Sequence[Change[FileState]], landed_by: Callable[[str], int]
) -> bool:
    """Return whether one more edit with these changes is within the limits of a rule."""
    most = rule.at_most
    new_files = sum(change.before is None for change in changes)
    deletes = sum(change.after is None for change in changes)
    counts = (
        (most.files, len(changes) - sum(change.source is not None for change in changes)),
        (most.new_files, new_files),
        (most.deletes, deletes),
    )
    if any(limit is not None and count > limit for limit, count in counts):
        return False
    if most.per_hour is not None and landed_by(rule.name) >= most.per_hour:
        return False
    return most.lines is None or _lines(changes) <= most.lines


def _lines(changes: Iterable[Change[FileState]]) -> int:
    return sum(sum(line_counts(change.before, change.after)) for change in changes)
