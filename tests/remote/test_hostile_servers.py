"""Servers that a client makes of the workspace, and programs that git would run for a URL: nothing starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.system.native import NATIVE
from editd_client.errors import EditdError
from support.bait import Bait, git
from support.hosts import bare_repository, exchange, hosts, name_host
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.workplace import Workplace

FILES = {"a.txt": "a\n"}
INCLUDES = ("include.path", "includeIf.hasconfig:remote.*.url:**.path", "includeIf.onbranch:none.path")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with workplace(tmp_path / "one", FILES) as made:
        name_host(made, "one")
        yield made


def write_server(folder: str, marker: Path) -> list[object]:
    """Return the edits that make a bare repository with a hook, as any client may send them."""
    hook = f"#!/bin/sh\ntouch {marker}\nexit 1\n"
    return [
        write(f"{folder}/HEAD", "ref: refs/heads/main\n"),
        write(f"{folder}/config", "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"),
        write(f"{folder}/objects/.keep", ""),
        write(f"{folder}/refs/heads/.keep", ""),
        write(f"{folder}/hooks/pre-receive", hook, mode="100755"),
    ]


def test_a_client_gets_no_hook_run_by_a_server_in_the_workspace(place: Workplace, tmp_path: Path) -> None:
    marker = tmp_path / "run"
    with place.start() as client:
        client.apply(write_server("evil/r.git", marker))  # type: ignore[arg-type]
        for url in (
            f"{scheme}{place.root}/evil/r{end}" for scheme in ("", "file://") for end in (".git", "")
        ):
            with pytest.raises(EditdError, match="is inside the workspace"):
                client.remote_init(url)
            with pytest.raises(EditdError, match="is inside the workspace"):
                client.remote_init(url, dry_run=True)
            with pytest.raises(EditdError, match="is inside the workspace"):
                client.remote_join(url, take="log")
        assert not marker.exists()
        assert client.remote_status().state == "none"
        assert not (place.state / "remote").exists(), "nothing was started"


@pytest.mark.skipif(not os.path.isdir(NATIVE.proc), reason="without /proc")
def test_a_path_through_a_process_is_refused_by_its_name_and_by_each_link(
    place: Workplace, tmp_path: Path
) -> None:
    """The fault: `editctl` resolved the path, so that the daemon saw none of /proc."""
    server, pid = bare_repository(tmp_path / "s.git"), os.getpid()
    (place.root / "link").symlink_to(f"/proc/{pid}/root{tmp_path}")
    names = ("self", "thread-self", str(pid), "self/task/../../self")
    urls = [f"/proc/{name}/root{server}" for name in names]
    urls += ["/proc/self/cwd/../s.git", f"{place.root}/link/s.git", "link/s.git", "/dev/fd/../../proc/1/cwd"]
    with place.start():
        for url in urls:
            for words in (("init", "--yes"), ("join",)):
                refused = place.editctl("remote", *words, url)
                assert refused.returncode == 1, url
                assert "leads through /proc" in refused.stderr, refused.stderr
        assert not (place.state / "remote").exists(), "nothing was started"


def test_a_url_that_is_a_program_is_refused_at_once(place: Workplace, tmp_path: Path) -> None:
    marker = tmp_path / "run"
    reasons = {
        f"ext::sh -c 'touch {marker}'": "git-remote-ext",
        "fd::0": "git-remote-fd",
        f"--upload-pack=touch {marker}": "is not the URL",
        f"ssh://-oProxyCommand=touch {marker}/x": "names no host",
        "work.git": "no absolute path",
    }
    with place.start() as client:
        for url, reason in reasons.items():
            for request in (client.remote_init, client.remote_join):
                with pytest.raises(EditdError, match=reason) as caught:
                    request(url)
                assert caught.value.name == "invalid_params"
        assert not marker.exists()
        assert not (place.state / "remote").exists()


@pytest.mark.skipif(not os.path.isdir(NATIVE.proc), reason="without /proc")
@pytest.mark.parametrize("through", ["/proc/PID/root", ""])
def test_a_bundle_replaces_no_file(place: Workplace, tmp_path: Path, through: str) -> None:
    with hosts(tmp_path / "log", 1, {"a.txt": "theirs\n"}) as (_, _, server):
        bundle = tmp_path / "log.bundle"
        git(server, "bundle", "create", "-q", str(bundle), "--all")
    with place.start() as client:
        url = through.replace("PID", str(os.getpid())) + str(bundle)
        with pytest.raises(EditdError, match="leads through /proc" if through else "is a file"):
            client.remote_join(url, take="log")
    assert place.files() == {"a.txt": b"a\n"}


def test_a_host_whose_server_becomes_a_link_into_the_workspace_exchanges_nothing(
    place: Workplace, tmp_path: Path
) -> None:
    marker, server = tmp_path / "run", bare_repository(tmp_path / "server.git")
    with place.start() as client:
        client.remote_init(str(server))
        exchange(client)
        client.remote_pause()
        server.rename(tmp_path / "away.git")
        client.apply(write_server("evil/r.git", marker))  # type: ignore[arg-type]
        server.symlink_to(place.root / "evil/r.git")
        client.remote_resume()
        state = client.remote_now(timeout=10)
        assert (state.state, "is inside the workspace" in str(state.error)) == ("refused", True)
        assert not marker.exists()
        server.unlink()
        (tmp_path / "away.git").rename(server)
        exchange(client)


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to], ids=["symlink", "hard link"])
def test_hooks_of_the_users_own_server_run_and_those_of_others_do_not(
    place: Workplace, tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    server, bait = bare_repository(tmp_path / "server.git"), Bait(tmp_path / "bait")
    hook = server / "hooks/post-receive"
    hook.write_text(f"#!/bin/sh\n{bait.trap('own-hook')}\n")
    hook.chmod(0o755)
    with place.start() as client:
        client.remote_init(str(server))
        assert bait.sprung() == ["own-hook"]
        client.apply([write("hook.sh", f"#!/bin/sh\n{bait.trap('edited-hook')}\n", mode="100755")])
        link(server / "hooks/post-update", place.root / "hook.sh")
        exchange(client)
        assert bait.sprung() == [], "one of the hooks is a file of the workspace"
        (server / "hooks/post-update").unlink()
        client.apply([write("a.txt", "b\n")])
        exchange(client)
        assert bait.sprung() == ["own-hook"]


def test_hooks_of_a_server_that_includes_a_file_of_a_workspace_do_not_run(
    place: Workplace, tmp_path: Path
) -> None:
    """The attack: libgit2 does not know each condition of an include, and saw no folder of hooks."""
    server, bait = bare_repository(tmp_path / "server.git"), Bait(tmp_path / "bait")
    own = server / "hooks/post-receive"
    own.write_text(f"#!/bin/sh\n{bait.trap('own-hook')}\n")
    own.chmod(0o755)
    git(tmp_path, "-C", str(server), "config", "remote.o.url", "https://x/y")
    with place.start() as client:
        hook = f"#!/bin/sh\n{bait.trap('edited-hook')}\n"
        client.apply([write("hooks/post-receive", hook, mode="100755")])
        client.apply([write("included", f"[core]\n\thooksPath = {place.root}/hooks\n")])
        client.remote_init(str(server))
        assert bait.sprung() == ["own-hook"]
        for key in INCLUDES:
            git(tmp_path, "-C", str(server), "config", key, str(place.root / "included"))
            client.apply([write("a.txt", f"{key}\n")])
            exchange(client)
            assert bait.sprung() == [], key
            git(tmp_path, "-C", str(server), "config", "--unset", key)
            client.apply([write("a.txt", f"without {key}\n")])
            exchange(client)
            assert bait.sprung() == ["own-hook"], key


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_hooks_of_a_server_of_another_user_do_not_run(place: Workplace, tmp_path: Path) -> None:
    server, bait = bare_repository(tmp_path / "server.git"), Bait(tmp_path / "bait")
    bait.set(server)
    (place.folder / "home/.gitconfig").write_text("[safe]\n\tdirectory = *\n")
    subprocess.run(["chown", "-R", "65534", server], check=True)
    with place.start() as client:
        client.remote_init(str(server))
        client.apply([write("a.txt", "b\n")])
        exchange(client)
        assert bait.sprung() == []
    assert "b" in git(tmp_path, "-c", "safe.directory=*", "-C", str(server), "log", "--all", "-p")
