"""The rules on paths: one type, the table of their kinds, and the one evaluator. Pure.

A rule has paths, sessions, an end and an action. `KINDS` has all that differs between the kinds. The owner of
a rule keeps it in its own form: a lease its queue and its number, a grant its uses, a review rule its limits.
Whether a rule is about a path is asked here alone, and so is the form in which two names are the same.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from msgspec import Struct

from editd.values.glob import GlobSet, path_outside
from editd.values.name_key import fold, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from editd.values.glob import Glob, Meter
    from editd.values.path import WorkspacePath

KindName = Literal["protect", "exclude", "pause", "scope", "lease", "review", "grant"]

Action = Literal[
    "refuse",  # an edit of the path
    "refuse reading",
    "propose",  # the edit waits for a reviewer
    "ask",  # the same, by the review policy
    "land",
    "leave out",  # the content of the file, from the history
]


class RuleKind(Struct, frozen=True):
    """The comparison of the rules of a kind with an edit, and the action of each that fits."""

    source: str  # as `docs/architecture.md` shows it
    paths: Literal["its globs", "all but its globs", "all"]
    sessions: Literal["all", "its own", "all but its own", "its patterns"]
    actions: tuple[Action, ...]
    has_end: bool = False
    is_always_folded: bool = False  # letter case and Unicode form, otherwise as the file system
    covers_folders: bool = False  # also a new file in the place of a folder that its paths need
    several: str = "one is enough"  # if several rules fit


KINDS: Mapping[KindName, RuleKind] = MappingProxyType(
    {
        "protect": RuleKind("`protect`", "its globs", "all", ("refuse",), covers_folders=True),
        "exclude": RuleKind(
            "`history.exclude` without `exclude_except`", "its globs", "all", ("leave out",),
            is_always_folded=True,
        ),
        "pause": RuleKind("`session.pause`", "all", "its own", ("refuse", "propose")),
        "scope": RuleKind("`session.open`", "all but its globs", "its own", ("refuse", "refuse reading")),
        "lease": RuleKind(
            "`lease.acquire`", "its globs", "all but its own", ("refuse",), has_end=True, covers_folders=True
        ),
        "review": RuleKind(
            "`review.rule`", "its globs", "its patterns", ("refuse", "ask", "land"), several="the first"
        ),
        "grant": RuleKind(
            "`review.allow`", "its globs", "its own", ("land",), has_end=True,
            several="the first, in place of a review rule that does not refuse",
        ),
    }
)  # fmt: skip
"""The kinds, in the order in which an edit meets their rules."""


class RuleOnPaths(Struct, frozen=True):
    """A rule on paths. `sessions` are names, or patterns of them for a kind that has such."""

    kind: KindName
    action: Action
    globs: GlobSet = GlobSet()
    exceptions: GlobSet = GlobSet()
    sessions: tuple[str | None, ...] | None = None  # None is all of them
    until_us: int | None = None  # microseconds since the epoch


class Bounds(Struct, frozen=True):
    """The paths that a session may write and read, its scope; None is all of them."""

    write: tuple[Glob, ...] | None = None
    read: tuple[Glob, ...] | None = None

    def rule(self, action: Literal["refuse", "refuse reading"], session: str | None) -> RuleOnPaths | None:
        """Return the rule that a session has of this scope, if the scope limits it."""
        globs = self.write if action == "refuse" else self.read
        return None if globs is None else RuleOnPaths("scope", action, GlobSet.of(globs), sessions=(session,))

    def unwritable(self, glob: Glob, meter: Meter) -> str | None:
        """Return a path that `glob` matches and the session may not write. Raises Exhausted."""
        return None if self.write is None else path_outside(glob, self.write, meter)


class Ruled(Protocol):
    """The owner of a rule, such as a lease."""

    @property
    def rule(self) -> RuleOnPaths: ...


Owner = TypeVar("Owner", bound=Ruled)


def is_over(until_us: int, now_us: int) -> bool:
    """Return whether the time of a rule with this end is over."""
    return until_us <= now_us


def fits(
    rule: RuleOnPaths,
    path: WorkspacePath | None,
    session: str | None = None,
    now_us: int | None = None,
    *,
    is_made: bool = False,
) -> bool:
    """Return whether a rule is about the use of a path by a session.

    With `is_made`, a file is at the path afterwards. Without `now_us`, the rule counts as not ended. A kind
    that is about all paths needs no path.
    """
    if now_us is not None and rule.until_us is not None and is_over(rule.until_us, now_us):
        return False
    kind = KINDS[rule.kind]
    if rule.sessions is not None and not _is_for(rule.sessions, kind, session):
        return False
    if kind.paths == "all":
        return True
    assert path is not None, "the kind is about some paths"
    key = fold(path.text) if kind.is_always_folded else key_of(path.text)
    is_among = rule.globs.has_key(key) and not (rule.exceptions and rule.exceptions.has_key(key))
    if is_made and kind.covers_folders and not is_among:
        is_among = any(glob.is_barred_by(path) for glob in rule.globs)
    return is_among == (kind.paths == "its globs")


def _is_for(sessions: Sequence[str | None], kind: RuleKind, session: str | None) -> bool:
    if kind.sessions == "its patterns":
        return session is not None and any(fnmatchcase(session, one) for one in sessions if one is not None)
    return (session in sessions) == (kind.sessions == "its own")


def first_fitting(
    owners: Iterable[Owner],
    path: WorkspacePath | None,
    session: str | None = None,
    now_us: int | None = None,
    *,
    is_made: bool = False,
) -> Owner | None:
    """Return the first owner of a rule that fits, as `fits`; None if none does."""
    return next((one for one in owners if fits(one.rule, path, session, now_us, is_made=is_made)), None)
