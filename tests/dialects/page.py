"""Renders the tables of `docs/dialects.md` from the vectors and the tables of deviations.

Renders `dialects.json` of the MCP server as well: the tools as the daemon describes them.

python tests/dialects/page.py            # print the page as it is to be
python tests/dialects/page.py --write    # write docs/dialects.md and dialects.json
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":  # as a script it finds the others itself
    sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "daemon")]

from editd.server import convert  # noqa: E402
from editd.tool_api.dialect_registry import DIALECTS  # noqa: E402
from editd.wire.codec import encode_json  # noqa: E402
from recorded import TOOLS, deviations, vectors  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "dialects.md"
LISTING = HERE.parents[1] / "client" / "editd_client" / "mcp" / "dialects.json"
MARKS = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(page: str) -> str:
    """The page with what stands between its marks made anew."""
    made = {"tools": tools(), "deviations": all_deviations()}
    return MARKS.sub(lambda found: found[1] + made[found[2]] + found[3], page)


def listing() -> str:
    """The answer of the method `dialects`."""
    answer = json.loads(encode_json(convert.dialects(DIALECTS.values())))
    return json.dumps(answer, indent=1, ensure_ascii=False) + "\n"


def tools() -> str:
    rows = []
    for dialect in DIALECTS.values():
        names = ", ".join(f"`{tool.name}`" for tool in dialect.tools)
        rows.append(f"| `{dialect.name}` | {names} | {dialect.description} |")
    return "\n".join(["| dialect | tools | |", "|---|---|---|", *rows]) + "\n"


def all_deviations() -> str:
    """For each dialect: how many vectors come out as recorded, and those that do not, with the reason."""
    parts = []
    for dialect in TOOLS:
        table, recorded = deviations(dialect), {vector.id: vector for vector in vectors(dialect)}
        parts += [
            f"### {dialect}",
            "",
            f"{len(recorded) - len(table)} of {len(recorded)} vectors come out as recorded; these do not:",
            "",
            "| vector | a fault of the original's | here | why |",
            "|---|---|---|---|",
        ]
        for name, entry in sorted(table.items()):
            is_fault = "yes" if "peer-quirk" in recorded[name].tags else ""
            outcome = "an edit" if entry["outcome"] == "ok" else f"`{entry['outcome']}`"
            parts.append(f"| {name} | {is_fault} | {outcome} | {entry['reason']} |")
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write both files")
    page = rendered(PAGE.read_text())
    if parser.parse_args().write:
        PAGE.write_text(page)
        LISTING.write_text(listing())
    else:
        print(page, end="")


if __name__ == "__main__":
    main()
