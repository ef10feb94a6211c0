"""Trees inside the workspace: submodules, nested repositories, linked worktrees, and inner workspaces.

Through the real daemon, the real command, the hook of an agent, and real git.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from editd.config.paths import workspace_id
from editd_client.errors import EditdError
from support.raw_client import hello, raw_client
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.raw_client import RawClient
    from support.workplace import Workplace

FILE_PROTOCOL = ("-c", "protocol.file.allow=always")


def commit_all(place: Workplace, folder: str, message: str = "first") -> None:
    place.git("-C", folder, "add", "-A")
    place.git("-C", folder, "commit", "-qm", message)


def add_submodule(place: Workplace, name: str = "sub") -> None:
    """Add a submodule whose git folder is absorbed, with the branches `main` and `other`."""
    library = place.folder / "library"
    if not library.exists():
        library.mkdir()
        (library / "x.py").write_text("x = 1\n")
        place.git("-C", str(library), "init", "-qb", "main")
        commit_all(place, str(library))
        place.git("-C", str(library), "checkout", "-qb", "other")
        (library / "x.py").write_text("x = 2\n")
        commit_all(place, str(library), "second")
        place.git("-C", str(library), "checkout", "-q", "main")
    place.git(*FILE_PROTOCOL, "submodule", "--quiet", "add", str(library), name)
    place.git("-C", name, "fetch", "-q", "origin", "other:other")
    place.git("commit", "-qm", f"with {name}")


@pytest.fixture
def place(place: Workplace) -> Iterator[Workplace]:
    place.variables["EDITD_HOOK_SECONDS"] = "30"  # the machine may have other work
    place.write({"a.txt": "1\n"})
    place.git("init", "-qb", "main")
    commit_all(place, ".")
    yield place
    for folder in ("inner", "plain/inner", "wt", "trees/one"):
        if (place.root / folder).is_dir():
            place.editctl("stop", folder=folder)
    place.editctl("stop")


def settled(place: Workplace) -> Client:
    client = place.start()
    client.settle()
    return client


def hook(
    place: Workplace, event: str, folder: str, path: str, *, is_strict: bool = False, **more: Any
) -> str:
    """Run Claude's hook around an edit of a file, from a folder."""
    payload = {
        "session_id": "0123456789abcdef", "cwd": str(place.root / folder), "hook_event_name": event,
        "tool_name": "Edit", "tool_use_id": "call-1",
        "tool_input": {"file_path": path, "old_string": "1", "new_string": "7"},
    }  # fmt: skip
    words = ["hook", "claude", *(["--strict"] if is_strict else [])]
    done = place.editctl(*words, folder=folder, stdin=json.dumps(payload | more))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def newest(client: Client, path: str) -> Any:
    client.settle()
    return next(one for one in client.log(path=path).transactions)


def roots_served(place: Workplace, folder: str) -> str:
    done = place.editctl("status", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    root: str = json.loads(done.stdout)["root"]
    return root


def refusal(call: Any, *given: Any) -> EditdError:
    with pytest.raises(EditdError) as raised:
        call(*given)
    return raised.value


# ── The outer daemon serves a submodule and a nested repository ──


@pytest.mark.parametrize("kind", ["submodule", "nested clone", "gitlink without .gitmodules"])
def test_an_edit_of_an_agent_whose_folder_is_an_inner_tree_is_the_agent_s(
    place: Workplace, kind: str
) -> None:
    if kind == "submodule":
        add_submodule(place)
    else:
        place.write({"sub/x.py": "x = 1\n"})
        place.git("init", "-qb", "main", "sub")
        commit_all(place, "sub")
        if kind != "nested clone":
            place.git("-c", "advice.addEmbeddedRepo=false", "add", "sub")
    with settled(place) as client:
        assert hook(place, "PreToolUse", "sub", f"{place.root}/sub/x.py") == ""
        place.write({"sub/x.py": "x = 7\n"})
        assert hook(place, "PostToolUse", "sub", f"{place.root}/sub/x.py") == ""
        made = newest(client, "sub/x.py")
        assert (made.kind, made.actor, made.session) == ("exec", "claude", "claude-89abcdef")


def test_a_command_in_a_submodule_acts_on_the_outer_workspace(place: Workplace) -> None:
    add_submodule(place)
    with settled(place) as client:
        root = os.path.realpath(place.root)
        assert roots_served(place, "sub") == root
        assert roots_served(place, "sub/.") == root
        done = place.editctl("replace", "x.py", "1", "9", folder="sub")
        assert done.returncode == 0, done.stderr
        assert newest(client, "sub/x.py").kind == "edit"
        started = json.loads(place.editctl("start", "--json", folder="sub").stdout)
        assert started["root"] == root


def test_that_the_outer_workspace_covers_a_submodule_is_found_out_once(place: Workplace) -> None:
    add_submodule(place)
    settled(place).close()
    assert place.editctl("log", folder="sub").returncode == 0
    note = place.state.parent / workspace_id(os.path.realpath(place.root / "sub")) / "part"
    assert note.read_text() == f"{os.path.realpath(place.root)}\n"
    before = note.stat().st_mtime_ns
    assert place.editctl("log", folder="sub").returncode == 0
    assert note.stat().st_mtime_ns == before
    listed = json.loads(place.editctl("workspaces", "--json").stdout)["workspaces"]
    assert [one["root"] for one in listed] == [os.path.realpath(place.root)]


def test_a_known_workspace_is_started_again_for_a_folder_inside(place: Workplace) -> None:
    add_submodule(place)
    settled(place).close()
    place.stop()
    done = place.editctl("log", "--json", folder="sub")
    assert done.returncode == 0, done.stderr
    assert roots_served(place, "sub") == os.path.realpath(place.root)


def test_a_relative_path_of_a_model_in_a_submodule_lands_in_no_other_folder(place: Workplace) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    add_submodule(place)

    def call(client: RawClient, path: str) -> Any:
        edits = [{"op": "write", "path": path, "content": "by a model\n"}]
        return client.ask(9, "tools/call", name="apply_edits", arguments={"edits": edits})["result"]

    with settled(place) as observer, raw_client(place, folder=place.root / "sub") as client:
        client.ask(1, "initialize", **hello())
        client.send({"method": "notifications/initialized"})
        refused = call(client, "new.py")
        assert refused["isError"]
        assert "In your repository it is sub/new.py" in json.dumps(refused)
        for path in ("sub/new.py", f"{place.root}/new.py"):
            assert not call(client, path)["isError"]
        assert newest(observer, "sub/new.py").kind == "edit"
        assert (place.root / "new.py").exists()


# ── Labels ──


def test_a_checkout_in_a_submodule_names_the_submodule(place: Workplace) -> None:
    add_submodule(place)
    with settled(place) as client:
        client.settle()
        place.git("-C", "sub", "checkout", "-q", "other")
        made = newest(client, "sub/x.py")
        assert made.message.startswith("sub: HEAD moved from ")
        assert made.message.endswith("(other)")


def test_a_change_beside_a_checkout_in_a_submodule_does_not_have_its_label(place: Workplace) -> None:
    add_submodule(place)
    with settled(place) as client:
        place.git("-C", "sub", "checkout", "-q", "other")
        place.write({"a.txt": "by hand\n"})
        assert newest(client, "sub/x.py").message.startswith("sub: ")
        assert newest(client, "a.txt").message == ""


def test_checkouts_of_both_trees_have_a_label_each(place: Workplace) -> None:
    add_submodule(place)
    place.git("checkout", "-qb", "outer")
    place.write({"a.txt": "outer\n"})
    place.git("commit", "-qam", "outer")
    place.git("checkout", "-q", "main")
    with settled(place) as client:
        place.git("checkout", "-q", "outer")
        place.git("-C", "sub", "checkout", "-q", "other")
        assert newest(client, "sub/x.py").message.startswith("sub: HEAD moved from ")
        assert newest(client, "a.txt").message.startswith("HEAD moved from ")


@pytest.mark.parametrize(("name", "label"), [("a b", "a b: "), ("a\nb", "'a\\nb': ")])
def test_a_stash_in_a_nested_repository_with_an_unusual_name_is_one_line(
    place: Workplace, name: str, label: str
) -> None:
    place.write({f"{name}/x.py": "x = 1\n"})
    place.git("init", "-qb", "main", name)
    commit_all(place, name)
    with settled(place) as client:
        place.write({f"{name}/x.py": "x = 2\n"})
        client.settle()
        place.git("-C", name, "stash", "-q")
        message = newest(client, f"{name}/x.py").message
        assert message.startswith(f"{label}Stashed: WIP on main")
        assert "\n" not in message


# ── Linked worktrees are separate workspaces ──


WORKTREES = ["wt", ".claude/worktrees/one", ".worktrees/one", "w t", "w\nt"]


@pytest.mark.parametrize("when", ["before the first scan", "while the daemon runs"])
def test_a_linked_worktree_is_not_recorded_and_an_edit_there_is_refused(place: Workplace, when: str) -> None:
    def add_worktrees() -> None:
        for number, name in enumerate(WORKTREES):
            place.git("worktree", "add", "-q", name, "-b", f"side{number}")

    if when == "before the first scan":
        add_worktrees()
    with settled(place) as client:
        if when != "before the first scan":
            add_worktrees()
        for name in WORKTREES:
            refused = refusal(client.apply, [replace(f"{name}/a.txt", "1", "2")])
            assert refused.name == "permission_denied"
            assert f"{name} is a linked worktree" in refused.message.replace("\\n", "\n")
            assert "editctl -C" in refused.hint
            assert refusal(client.apply, [write(f"{name}/new/b.txt", "")]).name == "permission_denied"
            assert not (place.root / name / "new").exists()
            (place.root / name / "a.txt").write_text("by hand\n")
            client.settle()
            assert not [one for one in client.log().transactions if one.kind != "baseline"]
        uncovered = [line for line in client.status().uncovered if "linked worktree" in line]
        assert len(uncovered) == len(WORKTREES)
        assert all("a separate workspace" in line for line in uncovered)


def test_thousands_of_files_of_a_new_worktree_are_not_recorded(place: Workplace) -> None:
    place.write({f"d{number % 50}/{number}": f"{number}\n" for number in range(2000)})
    commit_all(place, ".", "many")
    with settled(place) as client:
        head = client.status().head
        place.git("worktree", "add", "-q", "wt", "-b", "side")
        place.write({"after": ""})
        client.settle()
        assert client.status().head == head + 1
        assert client.log(path="wt").transactions == []


def test_a_worktree_that_is_removed_leaves_no_trace_and_its_folder_is_free(place: Workplace) -> None:
    with settled(place) as client:
        head = client.status().head
        place.git("worktree", "add", "-q", "wt", "-b", "side")
        refusal(client.apply, [write("wt/b.txt", "")])
        place.git("worktree", "remove", "wt")
        client.settle()
        assert client.status().head == head
        assert not [line for line in client.status().uncovered if "wt" in line]
        client.apply([write("wt/b.txt", "now ours\n")])
        assert (place.root / "wt/b.txt").read_text() == "now ours\n"


def test_files_of_a_worktree_that_becomes_a_folder_are_recorded(place: Workplace) -> None:
    """`rm wt/.git`: from then on the files are part of the workspace."""
    place.git("worktree", "add", "-q", "wt", "-b", "side")
    (place.root / "wt/deep").mkdir()
    (place.root / "wt/deep/c.txt").write_text("c\n")
    with settled(place) as client:
        (place.root / "wt/.git").unlink()
        assert newest(client, "wt/deep/c.txt").kind == "outside"
        assert newest(client, "wt/a.txt").kind == "outside"


def test_a_worktree_of_a_repository_elsewhere_and_one_of_a_missing_repository_are_left_out(
    place: Workplace,
) -> None:
    other = place.folder / "elsewhere"
    other.mkdir()
    (other / "b.txt").write_text("b\n")
    place.git("-C", str(other), "init", "-qb", "main")
    commit_all(place, str(other))
    place.git("-C", str(other), "worktree", "add", "-q", str(place.root / "wt"), "-b", "side")
    place.git("-C", str(other), "worktree", "add", "-q", str(place.root / "lost"), "-b", "lost")
    other.rename(place.folder / "moved")
    with settled(place) as client:
        for name in ("wt", "lost"):
            assert "linked worktree" in refusal(client.apply, [write(f"{name}/c.txt", "")]).message
        assert client.log(path="wt").transactions == []


def test_a_recorded_folder_that_becomes_a_worktree_keeps_its_history(place: Workplace) -> None:
    """Its files are another workspace's now: nothing says that they are deleted."""
    place.write({"wt/old.txt": "old\n"})
    with settled(place) as client:
        head = client.status().head
        with place.unnoticed():
            shutil.rmtree(place.root / "wt")
            place.git("worktree", "add", "-q", "wt", "-b", "side")
        client.settle()
        assert client.status().head == head
        place.git("worktree", "remove", "--force", "wt")
        made = newest(client, "wt/old.txt")
        assert [(one.path, one.change) for one in made.files] == [("wt/old.txt", "deleted")]


def test_an_undo_over_the_border_is_refused_whole(place: Workplace) -> None:
    with settled(place) as client:
        client.apply([write("wt/b.txt", "ours\n"), write("c.txt", "ours\n")])
        with place.unnoticed():
            shutil.rmtree(place.root / "wt")
            place.git("worktree", "add", "-q", "wt", "-b", "side")
        assert "linked worktree" in refusal(client.undo).message
        assert (place.root / "c.txt").read_text() == "ours\n"
        assert not (place.root / "wt/b.txt").exists()


def test_an_agent_at_the_top_edits_in_a_worktree_by_the_worktree_s_daemon(place: Workplace) -> None:
    place.git("worktree", "add", "-q", "wt", "-b", "side")
    with settled(place) as client:
        assert place.editctl("start", folder="wt").returncode == 0
        assert roots_served(place, "wt") == os.path.realpath(place.root / "wt")
        assert hook(place, "PreToolUse", "", f"{place.root}/wt/a.txt") == ""
        place.write({"wt/a.txt": "7\n"})
        assert hook(place, "PostToolUse", "", f"{place.root}/wt/a.txt") == ""
        place.editctl("settle", folder="wt")
        made = json.loads(place.editctl("log", "--json", folder="wt").stdout)["transactions"][0]
        assert (made["kind"], made["actor"], made["session"]) == ("exec", "claude", "claude-89abcdef")
        client.settle()
        assert client.log(path="wt").transactions == []


def test_an_edit_in_a_worktree_without_a_daemon_says_that_it_is_not_recorded(place: Workplace) -> None:
    place.git("worktree", "add", "-q", "w t", "-b", "side")
    root = os.path.realpath(place.root / "w t")
    payload = {
        "session_id": "0123456789abcdef", "hook_event_name": "PostToolUse", "cwd": str(place.root),
        "tool_name": "Write", "tool_input": {"file_path": f"{root}/a.txt"}, "tool_use_id": "1",
    }  # fmt: skip
    with settled(place) as client:
        place.write({"w t/a.txt": "7\n"})
        done = place.editctl("hook", "claude", stdin=json.dumps(payload))
        assert done.returncode == 0
        assert f"not recorded, because no daemon runs for {root}. " in done.stderr
        assert f"`editctl -C '{root}' start`" in done.stderr
        assert any("linked worktree" in line for line in client.status().uncovered)


def test_a_patch_over_two_workspaces_is_the_agent_s_in_the_one_whose_daemon_runs(place: Workplace) -> None:
    place.git("worktree", "add", "-q", "wt", "-b", "side")
    names = (f"{place.root}/wt/a.txt", f"{place.root}/a.txt")
    patch = "".join(f"*** Update File: {name}\n@@\n-1\n+7\n" for name in names)
    payload = {
        "session_id": "0123456789abcdef", "cwd": str(place.root), "tool_name": "apply_patch",
        "tool_use_id": "1", "tool_input": {"command": f"*** Begin Patch\n{patch}*** End Patch\n"},
    }  # fmt: skip
    with settled(place) as client:
        for event in ("PreToolUse", "PostToolUse"):
            given = json.dumps({**payload, "hook_event_name": event})
            assert place.editctl("hook", "codex", stdin=given).returncode == 0
            place.write({"wt/a.txt": "7\n", "a.txt": "7\n"})
        made = newest(client, "a.txt")
        assert (made.kind, made.actor, made.session) == ("exec", "codex", "codex-89abcdef")


def test_a_command_that_shows_a_file_of_another_workspace_has_read_it_there(place: Workplace) -> None:
    place.git("worktree", "add", "-q", "wt", "-b", "side")
    path = f"{place.root}/wt/a.txt"
    shown: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": f"cat {path}"}}
    with settled(place):
        assert place.editctl("start", folder="wt").returncode == 0
        hook(place, "PostToolUse", "", path, **shown)
        place.write({"wt/a.txt": "2\n"})
        place.editctl("settle", folder="wt")
        answer = hook(place, "PreToolUse", "", path, is_strict=True)
        hook(place, "PostToolUse", "", path, **shown)
        assert hook(place, "PreToolUse", "", path, is_strict=True) == ""
    denied = json.loads(answer)["hookSpecificOutput"]
    assert denied["permissionDecision"] == "deny"
    assert "-1\n+2\n" in denied["permissionDecisionReason"]


# ── A workspace inside another one ──


def test_the_inner_daemon_owns_its_files_whoever_began(place: Workplace) -> None:
    place.write({"inner/x.py": "x = 1\n"})
    place.git("init", "-qb", "main", "inner")
    commit_all(place, "inner")
    assert place.editctl("start", folder="inner").returncode == 0, "nothing serves the outer one yet"
    with settled(place) as client:
        head = client.status().head
        assert (
            "a folder with a separate history"
            in refusal(client.apply, [replace("inner/x.py", "1", "2")]).message
        )
        done = place.editctl("replace", "x.py", "1", "2", folder="inner")
        assert done.returncode == 0, done.stderr
        client.settle()
        assert client.status().head == head
        assert any("inner is a folder with a separate history" in line for line in client.status().uncovered)
        inner = json.loads(place.editctl("status", "--json", folder="inner").stdout)
        assert inner["root"] == os.path.realpath(place.root / "inner")
        assert inner["outer"] == os.path.realpath(place.root)
        assert "leaves this folder to this daemon" in place.editctl("status", folder="inner").stdout
        assert client.status().outer is None
    place.editctl("stop", folder="inner")
    assert place.editctl("start", folder="inner").returncode == 0, "it is still a separate workspace"


def test_a_plain_folder_that_a_daemon_serves_stays_its_own(tmp_path: Any, place: Workplace) -> None:
    shutil.rmtree(place.root / ".git")
    place.write({"plain/inner/x.py": "x = 1\n"})
    assert place.editctl("start", folder="plain/inner").returncode == 0
    with settled(place) as client:
        place.editctl("stop", folder="plain/inner")
        assert refusal(client.apply, [write("plain/inner/x.py", "")]).name == "permission_denied"


def test_an_inner_workspace_that_begins_later_takes_its_recorded_files_over(place: Workplace) -> None:
    place.write({"inner/deep/x.py": "x = 1\n"})
    with settled(place) as client:
        head = client.status().head
        done = place.editctl("-C", "inner", "--nested", "start")
        assert done.returncode == 0, done.stderr
        assert place.editctl("replace", "deep/x.py", "1", "2", folder="inner").returncode == 0
        client.settle()
        assert client.status().head == head
        assert refusal(client.apply, [replace("inner/deep/x.py", "2", "3")]).name == "permission_denied"


# ── Other trees ──


def test_a_submodule_that_is_initialised_and_removed_is_recorded_as_files(place: Workplace) -> None:
    add_submodule(place)
    place.git("submodule", "deinit", "-q", "--force", "sub")
    with settled(place) as client:
        place.git(*FILE_PROTOCOL, "submodule", "--quiet", "update", "--init")
        made = newest(client, "sub/x.py")
        assert [(one.path, one.change) for one in made.files] == [("sub/x.py", "added")]
        place.git("rm", "-qf", "sub")
        made = newest(client, "sub/x.py")
        assert "deleted" in {one.change for one in made.files}
        client.undo(tx=made.seq)
        assert (place.root / "sub/x.py").read_text() == "x = 1\n"


def test_a_bare_repository_is_a_folder_of_files(place: Workplace) -> None:
    place.git("init", "-q", "--bare", "mirror.git")
    with settled(place) as client:
        assert roots_served(place, "mirror.git") == os.path.realpath(place.root)
        place.git("--git-dir", "mirror.git", "symbolic-ref", "HEAD", "refs/heads/x")
        assert newest(client, "mirror.git/HEAD").message == ""


def test_git_clean_of_a_nested_repository_can_be_undone(place: Workplace) -> None:
    place.write({"nested/x.py": "x = 1\n"})
    place.git("init", "-qb", "main", "nested")
    with settled(place) as client:
        place.git("clean", "-qffdx")
        made = newest(client, "nested/x.py")
        client.undo(tx=made.seq)
        assert (place.root / "nested/x.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("words", [["start"], ["replace", "b", "2", "3"], ["log"]])
def test_an_ignored_clone_gets_a_daemon_of_its_own(place: Workplace, words: list[str]) -> None:
    """As in a repository of repositories, which ignores all of them."""
    place.write({".gitignore": "trees/\n", "trees/one/b": "2\n"})
    place.git("init", "-q", "trees/one")
    settled(place).close()
    done = place.editctl(*words, folder="trees/one")
    assert done.returncode == 0, done.stderr
    assert roots_served(place, "trees/one") == os.path.realpath(place.root / "trees/one")
