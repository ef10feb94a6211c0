"""One workspace, daemon and Neovim for most tests of a module: each test has files of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.neovim import Neovim, neovim
from support.workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("neovim") / "place", {"README": "read me\n"}) as made:
        made.git("init", "-q")
        settings = made.folder / "config" / "editd" / "config.toml"
        settings.parent.mkdir()
        settings.write_text(
            '[[hook]]\nname = "loud"\nglob = ["**/*.loud"]\ncommand = ["tr", "a-z", "A-Z"]\n\n'
            '[[hook]]\nname = "never"\nglob = ["**/*.never"]\ncommand = ["false"]\nkind = "check"\n'
        )
        made.start().close()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def running(shared: Workplace) -> Iterator[Neovim]:
    with neovim(shared, "require('editd').setup{merge = 'ask'}") as editor:
        editor.edit("README")
        editor.until("require('editd').info().connection == 'ready'")
        yield editor


@pytest.fixture
def vim(running: Neovim) -> Iterator[Neovim]:
    """The shared editor, with one empty window and nothing said."""
    running.command("silent! only!\nenew!")
    running.choose(None)
    running.lua("_G.said, _G.asked = {}, {} return true")
    yield running
    running.command("silent! only!\nsilent! %bwipeout!")


@pytest.fixture
def other(shared: Workplace) -> Iterator[Client]:
    """Somebody else."""
    with shared.client() as client:
        yield client


@pytest.fixture
def defaults(vim: Neovim) -> Iterator[None]:
    """The default settings, in place of those of the shared editor."""
    vim.command("lua require('editd').setup{}")
    yield
    vim.command("lua require('editd').setup{merge = 'ask'}")
