"""The table of permissions on docs/security.md is the code's, and so are the classes in docs/protocol.md.

`python tests/test_permissions_page.py` writes both anew.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from editd.engine.permissions import PERMISSIONS

if TYPE_CHECKING:
    from editd.engine.permissions import Permission

DOCS = Path(__file__).resolve().parent.parent / "docs"
TABLE = re.compile(r"(?<=<!-- permissions -->\n).*?(?=<!-- end -->)", re.DOTALL)
CLASS_LINE = re.compile(r"^(### `([a-z.]+)`\n```\n.*?^```\n)(?:Needs: [^\n]*\n)?", re.MULTILINE | re.DOTALL)


def class_of(row: Permission) -> str:
    """Return the class of a method, and of its options."""
    options = [
        f"`{option.needs}` with `{option.name}`" if option.value is True else f"{option.needs}: {option.name}"
        for option in row.options
    ]
    return ", ".join([f"`{row.needs}`", *options])


def security_table() -> str:
    lines = ["| method | class | right of agents | reason |", "|---|---|---|---|"]
    for kind, row in sorted(PERMISSIONS.items(), key=lambda entry: entry[0].method):
        right = f"`{row.right}`" if row.right else ""
        lines.append(f"| `{kind.method}` | {class_of(row)} | {right} | {row.reason} |")
    return "\n".join(lines) + "\n"


def with_classes(page: str) -> str:
    """Return the protocol's page with a line on the class below the form of each method."""
    classes = {kind.method: class_of(row) for kind, row in PERMISSIONS.items()}

    def line(title: re.Match[str]) -> str:
        if title[2] not in classes:
            return title[0]
        return f"{title[1]}Needs: {classes[title[2]]}.\n"

    return CLASS_LINE.sub(line, page)


def test_the_table_of_the_security_page_is_the_code_s() -> None:
    table = TABLE.search((DOCS / "security.md").read_text())
    assert table is not None
    assert table[0] == security_table(), "python tests/test_permissions_page.py writes it anew"


def test_each_method_of_the_protocol_page_has_its_class() -> None:
    page = (DOCS / "protocol.md").read_text()
    assert with_classes(page) == page, "python tests/test_permissions_page.py writes it anew"
    assert page.count("\nNeeds: ") == len(PERMISSIONS)


if __name__ == "__main__":
    security, protocol = DOCS / "security.md", DOCS / "protocol.md"
    security.write_text(TABLE.sub(lambda _: security_table(), security.read_text()))
    protocol.write_text(with_classes(protocol.read_text()))
    sys.stdout.write(f"{security}\n{protocol}\n")
