"""The rule for paths whose contents the history does not keep: globs, and exceptions from them.

The rule is `[history] exclude` without `exclude_except`. Letter case and Unicode form are ignored in it on
every file system, because a secret in `.ENV` is as secret. A person's configuration makes one rule. All that
leaves a content out asks the rule: the history, the first scan, proposals, and the exchange with hosts.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

from editd.values.glob import Glob, GlobSet
from editd.values.name_key import fold
from editd.values.path_rules import RuleOnPaths, fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from editd.values.path import WorkspacePath

_WILDCARD = re.compile(r"[*?\[\\]")
_NOTHING = "(?!)"  # an expression that matches no path
PATHS_KEPT_MAX = 1024  # whose answers a rule keeps
_FOLDERS = "(?:[^/]+/)*"  # the beginning of the expression of a glob with `**/` in front


class ExcludedPaths:
    """The excluded paths. Two rules are equal if their texts are."""

    def __init__(self, globs: Iterable[str] = (), exceptions: Iterable[str] = ()) -> None:
        """Raises InvalidParams for a text that is no glob."""
        self.globs, self.exceptions = tuple(globs), tuple(exceptions)
        rule = RuleOnPaths("exclude", "leave out", _unite(self.globs), _unite(self.exceptions))
        self.covers = lru_cache(PATHS_KEPT_MAX)(partial(fits, rule))
        """Return whether the path is excluded. The paths of the newest edits need no comparison."""

    @classmethod
    def of(cls, texts: Sequence[Iterable[str]]) -> ExcludedPaths:
        """Return the rule with these `texts`. Raises InvalidParams."""
        return cls(*texts)

    @classmethod
    def of_files(cls, paths: Iterable[WorkspacePath]) -> ExcludedPaths:
        """Return the rule that covers these files alone."""
        return cls(_WILDCARD.sub(r"\\\g<0>", path.text) for path in paths)

    @property
    def texts(self) -> list[list[str]]:
        """The rule in a form for other processes and for files."""
        return [list(self.globs), list(self.exceptions)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExcludedPaths) and self.texts == other.texts

    def __hash__(self) -> int:
        return hash((self.globs, self.exceptions))


def staying_paths(globs: Iterable[str], rules: Iterable[ExcludedPaths]) -> Callable[[WorkspacePath], bool]:
    """Return a predicate: whether a path never leaves its host (L9).

    `globs` are from `remote.exclude` and ignore letter case as well; `rules` are from the history.
    Raises InvalidParams.
    """
    known = (ExcludedPaths(globs), *rules)
    return lambda path: any(rule.covers(path) for rule in known)


class _United(GlobSet):
    """Globs as one expression, because each file of a scan is compared with them."""

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        forms = [glob.pattern.pattern for glob in self]
        anywhere = [one.removeprefix(_FOLDERS) for one in forms if one.startswith(_FOLDERS)]
        forms = [one for one in forms if not one.startswith(_FOLDERS)]
        if anywhere:  # the folders above are compared once for all of them
            forms.append(f"{_FOLDERS}(?:{'|'.join(anywhere)})")
        return re.compile("|".join(f"(?:{one})" for one in forms) or _NOTHING, re.DOTALL)

    def has_key(self, key: str) -> bool:
        return self._expression.fullmatch(key) is not None


@lru_cache(maxsize=4)  # each start of a daemon asks for one rule five times
def _unite(globs: tuple[str, ...]) -> _United:
    return _United(Glob.parse(fold(text)) for text in globs)
