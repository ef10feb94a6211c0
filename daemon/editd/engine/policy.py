"""The rules: what the configuration lets no client do. What other programs do is recorded all the same."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import IoError, PathProtected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.values.changeset import Change
    from editd.values.glob import Glob


class EditPolicy(Struct, frozen=True):
    protected: tuple[Glob, ...] = ()
    quota: int | None = None  # bytes of history

    def permit(self, changes: Sequence[Change]) -> None:
        """Raises PathProtected where one of the paths is protected, links followed."""
        for change in changes:
            for glob in self.protected:
                if glob.matches(change.path) or (change.after is not None and glob.is_barred_by(change.path)):
                    raise PathProtected(
                        f"{change.path} is protected by the configuration ({glob.text}).",
                        hint="`editctl config` shows `protect`; nothing was changed.",
                        data={"path": change.path.text, "protect": glob.text},
                    )

    def check_room(self, history_bytes: int) -> None:
        """Raises IoError (EDQUOT) where the history is as large as it may be. Nobody asks it of an undo."""
        if self.quota is None or history_bytes < self.quota:
            return
        refusal = IoError(
            OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
            f"The history takes {history_bytes} bytes, and `history.quota` is {self.quota}",
            hint=(
                "Nothing was changed. `editctl gc` frees what `history.keep` does not keep; or raise "
                "`history.quota`. Undo and reading go on."
            ),
        )
        refusal.data |= {"quota": self.quota, "bytes": history_bytes}
        raise refusal
