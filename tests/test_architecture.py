"""The floors: a module imports from those below it and from its own package; docs/architecture.md is true."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.store.git_repository import _HEAD as MANIFEST_HEAD

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

TOP = Path(__file__).resolve().parent.parent
ERRORS = {"errors", "advice", "words"}
GROUND = ERRORS | {"system"}
FLOORS: dict[str, set[str]] = {
    # package: the packages of editd that it may import, beside its own
    "advice": set(),
    "words": {"advice"},
    "errors": {"advice", "words"},
    "system": set(),
    "wire": set(),
    "values": {"wire"} | ERRORS,
    "edits": {"wire", "values"} | ERRORS,
    "parts": set(),
    "tool_api": {"parts", "edits", "wire", "values"} | ERRORS,
    "tools": {"tool_api", "edits", "wire", "values"} | ERRORS,
    "store": {"edits", "wire", "values"} | GROUND,
    "workspace": {"edits", "values", "config"} | GROUND,
    "remote": {"store", "edits", "wire", "values"} | GROUND,
    "runs": {"values", "config"} | GROUND,
    "review": {"store", "runs", "edits", "wire", "values", "config"} | GROUND,
    "engine": {"review", "store", "workspace", "runs", "tool_api", "edits", "wire", "values", "config"}
    | GROUND,
    "config": {"values"} | ERRORS,
    "server": {
        "engine",
        "review",
        "store",
        "workspace",
        "runs",
        "tool_api",
        "parts",
        "edits",
        "wire",
        "values",
        "config",
    }
    | GROUND,
    "cli": {"server", "engine", "config", "values"} | GROUND,
}
CLIENT_MAY_IMPORT = {"wire", "config", "advice", "words", "parts"}  # the socket, the file, words of refusals
OPTIONAL = (
    "editd.tools",
    "editd.remote",
    "editd_client.screen",
    "editd_client.web",
)  # that are found by their entry points alone
WIRE_LIVES_IN = {"wire", "server"}  # others take only its messages: the edits, and its sets of words
ASYNC_LIVES_IN = {"server", "cli"}


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((TOP / file).read_text(), file)


@cache
def nodes(file: str) -> tuple[ast.AST, ...]:
    """Every node of a file; many tests look at each."""
    return tuple(ast.walk(tree(file)))


@cache
def modules(folder: str) -> list[str]:
    return sorted(str(file.relative_to(TOP)) for file in (TOP / folder).rglob("*.py"))


def imports(file: str) -> Iterator[str]:
    """Every module that is imported, in functions and under TYPE_CHECKING too."""
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(file: str, known: Container[str]) -> Iterator[str]:
    """Each of the `known` modules that a module needs; `from package import module` needs the latter."""
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module or "" for name in names]
            yield from (name for name in names if name in known)


def name_of(file: str) -> str:
    """Return the dotted name of a module, by its file."""
    return ".".join(Path(file).with_suffix("").parts[1:]).removesuffix(".__init__")


def package_of(name: str) -> str | None:
    """The package of editd that a module belongs to; None for what is not editd's, "" for its top."""
    parts = name.split(".")
    if parts[0] != "editd":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FLOORS else ""


@pytest.mark.parametrize("file", modules("daemon"))
def test_a_daemon_module_imports_only_from_the_floors_below(file: str) -> None:
    own = Path(file).relative_to("daemon/editd").parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    allowed = FLOORS[own] | {own, ""}
    for name in imports(file):
        package = package_of(name)
        assert package is None or package in allowed, f"{file} ({own}) imports {name}"
        assert not name.startswith("editd_client"), f"{file} imports the client"
        is_messages = name == "editd.wire" or name.startswith(("editd.wire.messages", "editd.wire.raw_text"))
        assert package != "wire" or own in WIRE_LIVES_IN or is_messages, f"{file} imports {name}"
        assert own in ASYNC_LIVES_IN or name.split(".")[0] != "asyncio", f"{file} imports asyncio"


@pytest.mark.parametrize("file", modules("client"))
def test_the_client_imports_nothing_of_editd_but_what_is_said_and_configured(file: str) -> None:
    for name in imports(file):
        package = package_of(name)
        assert package is None or package in CLIENT_MAY_IMPORT | {""}, f"{file} imports {name}"
        assert name.split(".")[0] != "pygit2", f"{file} imports pygit2"


def test_the_core_imports_no_optional_part() -> None:
    """Nor does it name one of its modules in a text: `editd.parts` reads the names from the entry points."""
    module = re.compile(rf"(?:{'|'.join(map(re.escape, OPTIONAL))})\.\w+")
    folders = tuple(f"{name.replace('.', '/')}/" for name in OPTIONAL)
    for file in SOURCES:
        if file.partition("/")[2].startswith(folders):
            continue
        texts = [
            one.value for one in nodes(file) if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        names = [name for name in (*imports(file), *texts) if module.match(name)]
        assert not names, file
        assert not set(imports(file)) & set(OPTIONAL), file


LINUX_ONLY = re.compile(
    r"sys\.platform|\bO_PATH\b|/proc/|SO_PEERCRED|SOCK_NONBLOCK|\bfdatasync\(|\b(?:list|get|set|remove)xattr\("
    r"|\bpidfd_open\b|ctypes|EDITD_SYSTEM"
)
ASKING = {  # outside of `system`: the reason
    "config/environment.py": "it names the variable with the choice of the system, for a daemon",
    "config/paths.py": "the client uses it too: without /proc/locks no daemon counts as running",
}


def test_only_system_knows_what_linux_has_beyond_posix() -> None:
    """Other packages ask for a call of `system.native`, which has a substitute for each."""
    found = {
        file.removeprefix("daemon/editd/")
        for file in modules("daemon/editd")
        if LINUX_ONLY.search((TOP / file).read_text())
    }
    assert {file for file in found if not file.startswith("system/")} == set(ASKING)
    assert "system/native.py" in found


GIT_RUNNER = "daemon/editd/system/git_command.py"
STARTERS = re.compile(
    r"(?:subprocess|os|asyncio|shutil)\.|(?:^|\.)(?:Popen|which|create_subprocess_\w+|posix_spawnp?|exec[lv]p?e?)$"
)
GIT = re.compile(r"(?:^|[/\s;&|'\"(])git(?:-[a-z]+)*(?:$|\s)")


def runs_of_git(code: ast.AST) -> list[str]:
    """Return each command line of git, and each call that starts a program with `git` in its arguments."""
    runs: list[str] = []
    for node in ast.walk(code):
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            words: list[ast.AST] = [node.elts[0]] if len(node.elts) > 1 else []
        elif isinstance(node, ast.Call) and STARTERS.search(ast.unparse(node.func)):
            words = [word for part in node.args for word in ast.walk(part)]
        else:
            continue
        texts = [
            word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)
        ]
        if any(GIT.search(text) for text in texts) and not ast.unparse(node).startswith("os.path."):
            runs.append(ast.unparse(node))
    return runs


def test_one_module_runs_git() -> None:
    """It overrides the programs that a repository names: no other module starts git."""
    found = {file: runs for file in SOURCES if (runs := runs_of_git(tree(file)))}
    assert set(found) == {GIT_RUNNER}, found


@pytest.mark.parametrize(
    "code",
    [
        "run(['git', '-C', root, 'status'])",
        "argv = ('git', *words)",
        "os.system('git status')",
        "subprocess.run('cd x && git status', shell=True)",
        "shutil.which('git')",
        "['/usr/bin/git', 'status']",
        "os.execvp('git', argv)",
        "['git-upload-pack', folder]",
        "await asyncio.create_subprocess_exec('git')",
    ],
)
def test_a_run_of_git_is_seen_in_each_form(code: str) -> None:
    assert runs_of_git(ast.parse(code))


SDKS = {  # a package of an extra: the only modules that may import it
    "mcp": {"client/editd_client/mcp/server.py"},
    "starlette": {"client/editd_client/web/server.py"},
    "textual": {f"client/editd_client/screen/{name}.py" for name in ("app", "dialogs", "panes")},
    "uvicorn": {"client/editd_client/web/server.py"},
    "pygments": {"client/editd_client/review/patch.py"},
}


@pytest.mark.parametrize("sdk", SDKS)
def test_a_package_of_an_extra_is_imported_by_one_module(sdk: str) -> None:
    importers = {
        file for file in modules("client") if any(name.split(".")[0] == sdk for name in imports(file))
    }
    assert importers == SDKS[sdk]


def test_the_view_model_knows_no_screen() -> None:
    for file in modules("client/editd_client/review"):
        for name in imports(file):
            assert not name.startswith(("editd_client.web", "editd_client.screen", "editd_client.cli")), name
            assert name.split(".")[0] not in ("textual", "rich", "html", "asyncio"), name


FACES = ("screen", "web", "cli")
ASKED = re.compile(  # the requests that the conversations send, and no face
    r"requests\.(?:undo|redo|rollback|restore|publish|lease_release|session_(?:close|pause|resume)"
    r"|review_(?:allow|revoke|mark)|proposal_(?:comment|reject))\b"
)


def test_a_conversation_knows_no_face() -> None:
    for file in modules("client/editd_client/conversations"):
        for name in imports(file):
            assert not name.startswith(tuple(f"editd_client.{face}" for face in FACES)), name
            assert name.split(".")[0] not in ("asyncio", "click", "textual", "html"), name


@pytest.mark.parametrize("face", ["screen", "web"])
def test_a_face_sends_no_request_of_a_conversation(face: str) -> None:
    folder = f"client/editd_client/{face}"
    assert not [file for file in modules(folder) if ASKED.search((TOP / file).read_text())]


def test_the_command_line_sends_one_request_of_a_conversation() -> None:
    """The end of one lease by its name; an undo with `dry_run` finds what it would do."""
    sent = re.compile(ASKED.pattern.replace("requests", "client") + r"\((?!.*dry_run=True)")
    lines = [
        line.strip()
        for file in modules("client/editd_client/cli")
        for line in (TOP / file).read_text().splitlines()
        if sent.search(line)
    ]
    assert lines == ["client.lease_release(lease, force=force)"]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even for their types, so that each can be read after those that it names."""
    files = {name_of(file): file for folder in ("daemon", "client") for file in modules(folder)}
    graph = {name: set(imported(file, files)) for name, file in files.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])), pytrace=False)


def is_wire(annotation: ast.expr | None, services: Container[str]) -> bool:
    """Return whether an attribute of this type connects its object with another: a function, or a service."""
    if isinstance(annotation, ast.BinOp):  # `Gate | None`
        return is_wire(annotation.left, services) or is_wire(annotation.right, services)
    if isinstance(annotation, ast.Subscript):  # `Callable[[], None]`
        return ast.unparse(annotation.value) == "Callable"
    return isinstance(annotation, ast.Name) and annotation.id in services


def wires_of(cls: ast.ClassDef, services: Container[str]) -> Iterator[str]:
    """The attributes of a class that connect its objects with others."""
    parameters: dict[str, ast.expr | None] = {}
    for part in cls.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            parameters = {one.arg: one.annotation for one in (*part.args.args, *part.args.kwonlyargs)}
    for node in ast.walk(cls):
        if isinstance(node, ast.AnnAssign) and is_wire(node.annotation, services):
            yield ast.unparse(node.target).removeprefix("self.")
        if isinstance(node, ast.Assign) and is_wire(parameters.get(ast.unparse(node.value)), services):
            yield from (target.attr for target in node.targets if isinstance(target, ast.Attribute))


def wired_from_outside(files: Mapping[str, ast.Module], services: Container[str]) -> list[tuple[str, str]]:
    """The assignments, by file, that connect an object with another after its construction."""
    classes = [node for code in files.values() for node in ast.walk(code) if isinstance(node, ast.ClassDef)]
    wires = {name for cls in classes for name in wires_of(cls, services)}
    return [
        (file, ast.unparse(target))
        for file, code in files.items()
        for node in ast.walk(code)
        if isinstance(node, ast.Assign)
        for part in node.targets
        for target in ast.walk(part)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
        if target.attr in wires and ast.unparse(target.value) != "self"
    ]


def services() -> set[str]:
    """The classes of the daemon's services."""
    table = next(
        node
        for node in nodes("daemon/editd/server/methods/__init__.py")
        if isinstance(node, ast.ClassDef) and node.name == "Services"
    )
    return {
        node.annotation.id
        for node in table.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Name)
    } - {"str"}


def test_an_object_is_complete_when_it_is_constructed() -> None:
    """Nothing gives it a function or a service later. It may add a method to the listeners of another."""
    files = {file: tree(file) for file in modules("daemon/editd")}
    pause = {
        ("daemon/editd/engine/engine.py", "self.recorder.yield_turn")
    }  # while a large request is in slices
    assert set(wired_from_outside(files, services())) <= pause


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n def __init__(self, gate: Gate): self.gate = gate\ndef f(a): a.gate = 1",
        "class A:\n def __init__(self): self.gate: Gate | None = None\ndef f(a): a.gate = 1",
        "class A:\n def __init__(self): self.tell: Callable[[], None] = f\ndef f(a): a.tell = 1",
        "class A:\n tell: Callable[[], None] | None = None\ndef f(a): a.b.tell = 1",
    ],
)
def test_a_wire_from_outside_is_seen_in_each_form(code: str) -> None:
    assert [file for file, _ in wired_from_outside({"a.py": ast.parse(code)}, {"Gate"})] == ["a.py"]


def imported_when_run(file: str) -> set[str]:
    """The names that a module imports when it runs, so not those for its annotations."""
    body = tree(file).body
    code = [
        node for node in body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return {
        f"{node.module}.{alias.name}"
        for part in code
        for node in ast.walk(part)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_only_convert_makes_values_of_what_the_wire_says() -> None:
    """Other modules of the server name the types of both in annotations, and use one of them at most."""
    both = [
        file
        for file in modules("daemon/editd/server")
        if {"wire", "values"} <= {package_of(name) for name in imported_when_run(file)}
    ]
    assert both == ["daemon/editd/server/convert.py"]


def test_the_top_level_holds_what_the_owner_fixed() -> None:
    allowed = {
        "pyproject.toml", "README.md", "daemon", "client", "tests", "systemd", "docs",
        "LICENSE", "CHANGELOG.md",
    }  # fmt: skip
    extra = {p.name for p in TOP.iterdir() if not p.name.startswith(".")} - allowed
    assert not extra, f"not of the house: {sorted(extra)}"


def test_no_module_is_named_after_an_activity() -> None:
    """A module is a noun: the thing that it holds."""
    files = [file for folder in ("daemon", "client") for file in modules(folder)]
    assert not [file for file in files if file.endswith("ing.py")]


SAME_THING = {  # docs/glossary.md has the reason of each
    "Apply", "Change", "Part", "Published", "Restore", "Transaction", "Undo", "Workspace",
}  # fmt: skip


def test_no_two_public_classes_share_a_name() -> None:
    """But for the errors, of which the client has one for each code, and for `SAME_THING`."""
    homes: dict[str, list[str]] = {}
    for file in [file for folder in ("daemon", "client") for file in modules(folder)]:
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(file)
    errors = ["client/editd_client/errors.py", "daemon/editd/errors.py"]
    shared = {name for name, files in homes.items() if len(files) > 1 and sorted(files) != errors}
    assert shared == SAME_THING, shared ^ SAME_THING


def test_the_glossary_has_a_reason_for_each_name_with_two_classes() -> None:
    page = (TOP / "docs/glossary.md").read_text()
    assert set(first_cells(section("## Names with two classes", page))) == SAME_THING


# docs/architecture.md names modules, processes and versions, and is held to the code here.

ARCHITECTURE = (TOP / "docs/architecture.md").read_text()
SOURCES = [file for folder in ("daemon", "client") for file in modules(folder)]
_PACKAGES = "system|wire|values|edits|tools|tool_api|store|workspace|runs|review|engine|config|server"


def section(heading: str, page: str = ARCHITECTURE) -> str:
    """Return the part of the page below `heading`, up to the next heading of its level."""
    level = heading.partition(" ")[0]
    body = re.split(rf"^{re.escape(heading)}$", page, flags=re.MULTILINE)[1]
    return re.split(rf"^{level} ", body, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """Return the code in the first cell of each row of the text's tables."""
    rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def packages() -> dict[str, list[str]]:
    """Return the modules of each package, by its folder; `__init__` is the package itself."""
    found: dict[str, list[str]] = {}
    for file in SOURCES:
        folder, _, name = file.rpartition("/")
        found.setdefault(folder, [])
        if name != "__init__.py":
            found[folder].append(name.removesuffix(".py"))
    return found


@cache
def run_as_modules() -> set[str]:
    """Return each module that the code starts as a process, by `-m` in a list of arguments."""
    found = set[str]()
    for file in SOURCES:
        for node in nodes(file):
            if isinstance(node, ast.List | ast.Tuple):
                found |= {
                    module.value
                    for flag, module in pairwise(node.elts)
                    if isinstance(module, ast.Constant)
                    and isinstance(module.value, str)
                    and module.value.startswith("editd")
                    and ast.unparse(flag) in ("'-m'", "*PYTHON")
                }
    return found


def versions() -> dict[str, int]:
    """Return each constant that is the version of a format, as `package.module.NAME`."""
    found: dict[str, int] = {}
    for file in modules("daemon/editd"):
        path = file.removeprefix("daemon/editd/").removesuffix(".py").replace("/", ".")
        for name, number in re.findall(
            r"^(\w*(?:VERSION|SCHEMA|PROTOCOL)) = (\d+)\b", (TOP / file).read_text(), re.MULTILINE
        ):
            found[f"{path}.{name}"] = int(number)
    return found


def test_the_page_of_the_architecture_has_a_table_for_each_package() -> None:
    named = re.findall(r"^### `([\w/]+)`$", section("## Modules"), re.MULTILINE)
    assert sorted(named) == sorted(packages())


@pytest.mark.parametrize("folder", packages())
def test_the_table_of_a_package_names_each_of_its_modules_once(folder: str) -> None:
    assert sorted(first_cells(section(f"### `{folder}`"))) == sorted(packages()[folder])


def test_the_table_of_the_floors_has_every_package() -> None:
    assert set(first_cells(section("## The floors"))) == set(FLOORS) - ERRORS - {"cli", "parts"} | {
        "editd_client"
    }


@pytest.mark.parametrize("page", ["architecture.md", "commit.md", "contributing.md"])
def test_a_module_that_a_page_names_exists(page: str) -> None:
    """As `store.journal`, with `editd.` before it or not, or as `store/journal.py`."""
    text = (TOP / "docs" / page).read_text()
    dotted = re.findall(rf"`(?:editd\.)?((?:{_PACKAGES})(?:\.[a-z_]+)+)`", text)
    files = re.findall(rf"`(?:daemon/editd/)?((?:{_PACKAGES})/[a-z_/]+\.py)`", text)
    others = {"store.git", "review.mark", "review.allow", "review.rule"}  # a folder on disk; methods; a key
    named = {name.replace(".", "/") for name in dotted if name not in others}
    named |= {file.removesuffix(".py") for file in files}
    assert named
    daemon = TOP / "daemon/editd"
    assert not {name for name in named if not ((daemon / name).is_dir() or (daemon / f"{name}.py").exists())}


def test_the_page_of_the_architecture_has_every_module_that_is_run_as_a_process() -> None:
    assert set(first_cells(section("## Processes and threads"))) == run_as_modules()
    assert "editd.store.pack_worker" in run_as_modules()


def test_the_page_of_the_architecture_has_the_version_of_each_format() -> None:
    named = re.findall(r"version (\d+) \(`([\w.]+)`\)", ARCHITECTURE)
    assert {name: int(version) for version, name in named} == versions()
    assert len(named) == len(versions()) > 4
    assert f"`{MANIFEST_HEAD.decode().strip()}`" in section("## On disk")
