"""The grants of reviewers, which let edits land without a decision, and the ruling on an edit with them.

A grant is used up before the edit that it lets land is committed. So a kill in between costs a use of it,
and never gives one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.errors import InvalidParams, Overloaded
from editd.values.grant import Grant
from editd.values.path_rules import is_over

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from editd.review.policy import ReviewPolicy, Ruling
    from editd.store.history import History
    from editd.store.proposals import ProposalStore
    from editd.system.clock import Clock
    from editd.values.content import Change, FileState
    from editd.values.glob import Glob
    from editd.values.proposal import Reviewer

TTL_US_MAX = 86_400 * 1_000_000  # a day
GRANTS_MAX = 100  # in force: more than a person can keep in mind
HOUR_US = 3_600 * 1_000_000


class Grants:
    """The grants of a workspace. Used by the engine's thread."""

    def __init__(self, store: ProposalStore, history: History, clock: Clock) -> None:
        self.store = store
        self._history = history
        self._clock = clock

    def allow(
        self,
        globs: Sequence[Glob],
        ttl_us: int,
        session: str | None,
        uses: int | None,
        lines: int | None,
        by: Reviewer,
    ) -> Grant:
        """Grant edits of these paths; durable on return. Raises InvalidParams, Overloaded or IoError."""
        if not globs:
            raise InvalidParams("`paths` names no path.")
        if not 0 < ttl_us <= TTL_US_MAX:
            raise InvalidParams("`ttl` is more than 0 and at most a day.")
        if any(limit is not None and limit < 1 for limit in (uses, lines)):
            raise InvalidParams("`uses` and `lines` are at least 1.")
        if len(self.grants()) >= GRANTS_MAX:
            raise Overloaded(f"{GRANTS_MAX} grants are in force.", hint="Revoke some of them first.")
        expires_us = self._clock.now_us() + ttl_us
        return self.store.add_grant(
            Grant(0, session, tuple(globs), expires_us, uses, lines, by.actor, by.session, by.via)
        )

    def grants(self) -> list[Grant]:
        """Return the grants in force, and delete those whose time is over. Raises IoError."""
        now_us = self._clock.now_us()
        ended = [one.number for one in self.store.grants.values() if is_over(one.expires_us, now_us)]
        if ended:
            self.store.put_grants((), ended)
        return list(self.store.grants.values())

    def revoke(self, number: int) -> None:
        """End a grant. Raises InvalidParams if it is not in force, and IoError."""
        if all(one.number != number for one in self.grants()):
            raise InvalidParams(
                f"There is no grant {number}.", hint="List the grants.", data={"grant": number}
            )
        self.store.put_grants((), [number])

    def use(self, ruling: Ruling) -> None:
        """Use up the grants that let an edit land; durable on return. Raises IoError."""
        if not ruling.grants:
            return
        left = [(grant.number, grant.after(lines)) for grant, lines in ruling.grants]
        self.store.put_grants(
            [grant for _, grant in left if grant is not None],
            [number for number, grant in left if grant is None],
        )

    def ruling(
        self,
        policy: ReviewPolicy,
        changes: Sequence[Change[FileState]],
        session: str | None,
        passed: Collection[str] = (),
    ) -> Ruling:
        """Return the policy's decision about planned changes that have passed these checks.

        The edits that a rule let land within the last hour are counted in the history.
        Raises PermissionDenied if a rule refuses them, and IoError.
        """
        since_us = self._clock.now_us() - HOUR_US
        index = self._history.index
        return policy.judge(
            changes, session, self.grants(), lambda rule: index.count_landed_by(rule, since_us), passed
        )
