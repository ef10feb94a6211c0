"""The fields of a form as a browser sends them, and the answer to a form."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from editd_client.conversations.asker import number_in

if TYPE_CHECKING:
    from editd_client.errors import EditdError
    from editd_client.web.layout import Page

Form = Mapping[str, Sequence[str]]


class FormAnswer(Struct, frozen=True):
    """The answer to a form: a page, a sentence about it, and whether the form was refused.

    With `is_elsewhere`, a browser without the script goes to the page's own address.
    """

    page: Page
    said: str
    status: int = 200
    is_elsewhere: bool = False


def first(form: Form, name: str) -> str:
    """Return the value of a field, or nothing."""
    return next(iter(form.get(name, ())), "")


def text_of(form: Form, name: str) -> str:
    """Return the text of a field of several lines. A browser sends each line end as CR LF."""
    return first(form, name).replace("\r\n", "\n").strip()


def number(form: Form, name: str) -> int | None:
    """Return the number in a field, or None if it is empty. Raises EditdError (`invalid_params`)."""
    return number_in(first(form, name))


def new_request() -> tuple[str, str]:
    """Return the hidden field that makes the same form, sent twice, one request."""
    return "request_id", secrets.token_hex(16)


def status_of(error: EditdError) -> int:
    """Return the status of HTTP for a refusal."""
    return {
        "permission_denied": 403, "unknown_proposal": 404, "unknown_transaction": 404, "stale": 409,
        "conflict": 409, "decided": 409, "overloaded": 429,
    }.get(error.name, 400)  # fmt: skip
