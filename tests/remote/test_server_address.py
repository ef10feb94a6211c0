"""server_address: the URLs that are servers, and those that are refused with the reason."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.errors import InvalidParams
from editd.remote.server_address import ServerAddress, workspaces_in
from editd.system.git_command import without_credentials
from editd.system.native import NATIVE
from support.bait import git
from support.hosts import bare_repository

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with a workspace, its state folder, and a repository in the workspace and beside it."""
    top = tmp_path.resolve()
    (top / "work").mkdir()
    (top / "histories/0123").mkdir(parents=True)
    (top / "histories/0123/root").write_text(f"{top}/work\n")
    (top / "histories/integrations.json").write_text("{}")
    bare_repository(top / "work/evil/r.git")
    bare_repository(top / "server.git")
    return top


def refusal_of(url: str, machine: Path) -> str:
    with pytest.raises(InvalidParams) as caught:
        ServerAddress.parse(url).repository(str(machine / "histories"))
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("ssh://me@server:22/srv/work.git", "me@server"),
        ("git+ssh://server/srv/work.git", "server"),
        ("me@server:work.git", "me@server"),
        ("server:work.git", "server"),
        ("ssh://me@[::1]:22/srv/work.git", "me@::1"),
        ("[::1]:work.git", "::1"),
        ("me@[fe80::1%eth0]:work.git", "me@fe80::1%eth0"),
        ("/srv/a:b.git", None),
        ("https://me@server/work.git", None),
        ("http://server:8080/work.git", None),
        ("git://server/work.git", None),
        ("file:///srv/work.git", None),
    ],
)
def test_the_host_of_a_url(url: str, host: str | None) -> None:
    assert ServerAddress.parse(url).ssh_host == host


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "is not the URL"),
        ("-x", "is not the URL"),
        ("--upload-pack=touch x", "is not the URL"),
        ("/srv/a\nb", "is not the URL"),
        ("file:///srv/a%00b", "is not the URL"),
        ("ext::sh -c 'touch x'", "git-remote-ext"),
        ("fd::0", "git-remote-fd"),
        ("http::https://server/x", "git-remote-http"),
        ("persistent-https://server/x", "the unknown scheme 'persistent-https'"),
        ("HTTP://server/x", "the unknown scheme 'HTTP'"),
        ("ftp://server/x", "the unknown scheme 'ftp'"),
        ("ssh://-oProxyCommand=touch x/y", "names no host"),
        ("-oProxyCommand=x:y", "is not the URL"),
        ("me@-oProxyCommand=x:y", "names no host"),
        ("server:-x", "names no host"),
        (":x", "no absolute path"),
        ("me@:x", "names no host"),
        ("ssh:///srv/work.git", "names no host"),
        ("work.git", "no absolute path"),
        ("../work.git", "no absolute path"),
        ("./a:b", "no absolute path"),
        ("~/work.git", "no absolute path"),
        ("~me/work.git", "no absolute path"),
        ("file://localhost/srv/work.git", "no absolute path"),
        ("file://~/work.git", "no absolute path"),
    ],
)
def test_a_url_of_no_server_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        ServerAddress.parse(url)
    assert reason in caught.value.message


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    "path",
    [
        "work/evil/r.git", "work/evil/r", "work/evil/../evil/r.git/", "work", "work/missing", "link/r.git",
        "server-link", "suffixed", "gitfile", "/work/evil/r.git", "linked",
    ],
)  # fmt: skip
def test_a_server_inside_a_workspace_is_refused_by_any_name(scheme: str, path: str, machine: Path) -> None:
    (machine / "link").symlink_to(machine / "work/evil")
    (machine / "server-link").symlink_to(machine / "work/evil/r.git")
    (machine / "suffixed.git").symlink_to("work/evil/r.git")
    (machine / "gitfile").mkdir()
    (machine / "gitfile/.git").write_text(f"gitdir: {machine}/work/evil/r.git\n")
    git(machine / "work", "init", "-q")
    git(machine / "work", "commit", "-q", "--allow-empty", "-m", "x")
    git(machine / "work", "worktree", "add", "-q", str(machine / "linked"))
    assert "is inside the workspace" in refusal_of(f"{scheme}{machine}/{path}", machine)


def test_an_escaped_path_is_the_same_path(machine: Path) -> None:
    assert "is inside the workspace" in refusal_of(f"file://{machine}/%77ork/evil%2Fr.git", machine)


def test_the_folders_of_other_workspaces_and_of_the_histories_are_no_servers(machine: Path) -> None:
    (machine / "histories/4567").mkdir()
    (machine / "histories/4567/root").write_text(f"{machine}/other\n")
    bare_repository(machine / "other/r.git")
    bare_repository(machine / "histories/0123/store.git")
    assert workspaces_in(str(machine / "histories")) == [f"{machine}/work", f"{machine}/other"]
    assert f"the workspace {machine}/other" in refusal_of(f"{machine}/other/r.git", machine)
    assert "editd's own histories" in refusal_of(f"{machine}/histories/0123/store.git", machine)


def test_a_repository_with_a_workspace_in_it_is_no_server(machine: Path) -> None:
    (machine / "histories/0123/root").write_text(f"{machine}/server.git/hooks\n")
    assert "has the workspace" in refusal_of(f"{machine}/server.git", machine)


def test_a_folder_with_a_workspace_in_it_is_refused_also_without_a_repository(machine: Path) -> None:
    assert "has the workspace" in refusal_of(str(machine), machine)


@pytest.mark.skipif(not os.path.isdir(NATIVE.proc), reason="without /proc")
def test_a_path_into_another_process_is_refused(machine: Path) -> None:
    (machine / "link").symlink_to(f"/proc/{os.getpid()}/root")
    for path in (f"/proc/{os.getpid()}/root{machine}/server.git", f"{machine}/link{machine}/server.git"):
        for scheme in ("", "file://"):
            assert "leads through /proc" in refusal_of(scheme + path, machine)


@pytest.mark.parametrize("name", ["log.bundle", "log"])
def test_a_bundle_is_refused(name: str, machine: Path) -> None:
    git(machine / "work", "init", "-q")
    git(machine / "work", "commit", "-q", "--allow-empty", "-m", "x")
    git(machine / "work", "bundle", "create", "-q", str(machine / name), "--all")
    assert "is a file, such as a bundle" in refusal_of(f"{machine}/{name}", machine)


def test_a_server_in_a_folder_is_its_resolved_repository(machine: Path) -> None:
    (machine / "link").symlink_to("server.git")
    for url in (
        f"{machine}/server.git",
        f"{machine}/server",
        f"{machine}/link",
        f"file://{machine}/server.git",
    ):
        address = ServerAddress.parse(url)
        repository = address.repository(str(machine / "histories"))
        assert repository is not None
        assert (repository.folder, repository.is_own) == (f"{machine}/server.git", True)
        scheme = "file://" if url.startswith("file") else ""
        assert address.target(repository) == f"{scheme}{machine}/server.git"
    missing = ServerAddress.parse(f"{machine}/missing.git")
    assert missing.repository(str(machine / "histories")) is None
    assert missing.target(None) == f"{machine}/missing.git"


def test_git_takes_the_resolved_url_of_a_folder_with_odd_letters(machine: Path) -> None:
    odd = bare_repository(machine / "a %41 ü#?.git")
    address = ServerAddress.parse(f"file://{machine}/a%20%2541%20%C3%BC%23%3F.git")
    repository = address.repository(str(machine / "histories"))
    assert repository is not None
    assert repository.folder == str(odd)
    subprocess.run(["git", "ls-remote", address.target(repository)], check=True)


def test_a_password_is_not_shown() -> None:
    for url in (
        "https://me:secret@server/x", "fish://me:secret@server/x", "https://me:secret@secret@server/x",
        "https://secret@server/x", "https://server/x?private_token=secret", "https://server/x#secret",
        "ssh://me:secret%0a@[::1]:22/x",
    ):  # fmt: skip
        assert "secret" not in without_credentials(url)
        assert "secret" not in without_credentials(f"fatal: unable to access '{url}/': no server\nsee {url}")
    for url in ("https://server/a@b/x", "file:///srv/a?b.git", "me@server:work.git", "/srv/a@b.git"):
        assert without_credentials(url) == url
    with pytest.raises(InvalidParams) as caught:
        ServerAddress.parse("fish://me:secret@server/x")
    assert "secret" not in caught.value.message
