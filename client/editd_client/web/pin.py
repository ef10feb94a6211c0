"""The question for the PIN: any form that the daemon takes only with it is sent again with one field more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.words import Face
from editd_client.web.form_fields import first
from editd_client.web.layout import detail, hidden
from editd_client.web.markup import Html, element

if TYPE_CHECKING:
    from editd_client.errors import EditdError
    from editd_client.web.form_fields import Form
    from editd_client.web.visitor import Visitor


async def unlock(form: Form, visitor: Visitor) -> None:
    """Give the PIN of a form, if it has one. Raises EditdError if it is wrong."""
    if pin := first(form, "pin"):
        await visitor.unlock(pin)


def needs_pin(form: Form, error: EditdError) -> bool:
    """Return whether the daemon takes the form only with the PIN, or did not take the one in the form."""
    return bool(error.data.get("needs_pin")) or bool(first(form, "pin"))


def pin_question(form: Form, error: EditdError, action: str) -> Html | None:
    """Return a form that asks for the PIN, and sends the same request again; None if the PIN is no cure."""
    if not needs_pin(form, error):
        return None
    return detail(
        element("p", error.text(Face.PAGE), class_="refusal", role="alert"),
        element(
            "form",
            hidden([(name, one) for name in form if name != "pin" for one in form[name]]),
            element(
                "label", "PIN ",
                element("input", type="password", name="pin", autocomplete="off", autofocus=True, id="pin"),
            ),
            element("button", "Send it again"),
            method="post",
            action=action,
        ),
        label="PIN",
    )  # fmt: skip
