"""runs.limits: docs/architecture.md has the limits of each way to run a command."""

from __future__ import annotations

from pathlib import Path

from editd.runs.limits import CHECKS, HOOKS, JOB_SECONDS, PRINTED_BYTES_MAX, WRITTEN_BYTES_MAX
from editd_client.trial import OUTPUT_CHARACTERS_MAX
from editd_client.web.trials import RUNNING_MAX

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def rows() -> dict[str, list[str]]:
    """Return the cells of the table of the user's commands, by the first cell of each row."""
    section = PAGE.read_text().split("## The user's commands")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return {first.strip(): [cell.strip() for cell in cells] for first, *cells in lines}


def test_the_page_of_the_architecture_has_the_limits_of_the_users_commands() -> None:
    table = rows()
    kept = f"the last {OUTPUT_CHARACTERS_MAX:,} characters"
    assert CHECKS.kept_bytes == 4 * OUTPUT_CHARACTERS_MAX
    assert table["at once"] == [
        f"{HOOKS.at_once} edits",
        f"{CHECKS.at_once}",
        f"1, or {RUNNING_MAX} from the page",
        "1",
    ]
    assert table["niceness"][:2] == [f"{HOOKS.nice}", f"{CHECKS.nice}"]
    assert table["time"][0] == f"`seconds`; {JOB_SECONDS:g} s for all hooks of an edit"
    assert table["output as events"][0].startswith(f"the first {HOOKS.kept_bytes >> 10} KiB of each stream")
    assert table["output as events"][1:3] == [kept, f"shown, and {kept}"]
    assert table["largest output, file"][0] == f"{PRINTED_BYTES_MAX >> 20} MiB, {WRITTEN_BYTES_MAX >> 30} GiB"
