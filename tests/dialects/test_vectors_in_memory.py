"""Every vector, planned in memory: what comes of it is what the vector says, or what its deviation does."""

from __future__ import annotations

import pytest

from desk import ROOT, Workspace, on
from editd.edits.desk import Settings
from editd.errors import Refused
from editd.values.changeset import Plan
from recorded import Vector, rooted, vectors


def workspace(vector: Vector) -> Workspace:
    globs = vector.state.get("allowed_globs")
    settings = Settings(
        ignored_paths=tuple(vector.state.get("ignored_paths", ())),
        edit_globs=None if globs is None else tuple(rooted(glob, ROOT) for glob in globs["edit"]),
        write_globs=None if globs is None else tuple(rooted(glob, ROOT) for glob in globs["write"]),
        home=rooted(vector.state.get("home", ""), ROOT),
    )
    return on(vector.files, links=vector.symlinks, settings=settings, encoding=vector.state.get("encoding"))


def prepare(place: Workspace, vector: Vector) -> None:
    for step in vector.steps:
        match step["op"]:
            case "read":
                place.read("t1", step["path"], step.get("start"), step.get("end"))
            case "write_disk":
                place.files[step["path"]] = step["content"].encode()
            case "delete_disk":
                del place.files[step["path"]]
            case "call":
                try:
                    place.call(vector.dialect, vector.tool, rooted(step["call"], ROOT))
                except Refused:
                    continue  # `step_results` says which; the real socket's test looks at it


@pytest.mark.parametrize(
    "vector",
    [
        pytest.param(vector, id=vector.id)
        for name in ("serena", "gemini", "wcgw", "roo", "cline")
        for vector in vectors(name)
    ],
)
def test_a_vector_comes_out_as_it_says(vector: Vector) -> None:
    place = workspace(vector)
    prepare(place, vector)
    before = dict(place.files)
    made: Plan | None = None
    refused = ""
    try:
        made = place.call(vector.dialect, vector.tool, rooted(vector.call, ROOT))
    except Refused as refusal:
        refused = refusal.code
        assert refusal.hint, f"{refusal.message}: no hint"
    if vector.expected.files is None:
        assert refused in vector.expected.errors, (
            f"{refused or place.files}, not {set(vector.expected.errors)}"
        )
        assert place.files == before
        return
    assert not refused, f"refused: {refused}"
    assert place.files == vector.expected.files
    if vector.expected.warnings is not None and made is not None:
        kinds = {w.split(":")[0] for report in made.reports.values() for w in report.warnings if ":" in w}
        assert {kind for kind in kinds if " " not in kind} == vector.expected.warnings
