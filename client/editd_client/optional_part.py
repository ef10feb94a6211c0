"""The optional parts of the client: the page in a browser and the screen, by their entry points."""

from __future__ import annotations

from typing import Any

from editd.advice import Advice, step_term
from editd.parts import PARTS, PartFailed, parts_of
from editd_client.errors import refusal


def load_part(name: str, command: str) -> Any:
    """Return the object of a part, which a command needs. Raises EditdError (`not_installed`)."""
    part = parts_of(PARTS).get(name)
    hint = Advice(step_term("install_part"))
    data = {"group": PARTS, "part": name}
    if part is None:
        message = f"The part `{name}` of editd, which `{command}` needs, is not installed."
        raise refusal("not_installed", message, hint=hint, data=data)
    try:
        return part.load()
    except PartFailed as failure:
        message = f"The part `{name}` of editd, which `{command}` needs, cannot be loaded: {failure}."
        raise refusal("not_installed", message, hint=hint, data={**data, "reason": str(failure)}) from failure
