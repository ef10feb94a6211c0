"""What the tests of the workspace's files may ask for."""

from __future__ import annotations

import pytest

import working_files


@pytest.fixture(params=[False, True], ids=["made", "spared"])
def spared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run it twice: with temporaries made beside their targets, and with spares."""
    monkeypatch.setattr(working_files, "is_spared", request.param)
    return bool(request.param)
