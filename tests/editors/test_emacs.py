"""The Emacs package, by batch Emacs against a real daemon: the claims are in `editd-tests.el`."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.reviewers import config_folder, set_pin
from support.workplace import TOP

if TYPE_CHECKING:
    from support.workplace import Workplace

PACKAGE = TOP / "client" / "editors" / "emacs" / "editd.el"
CLAIMS = Path(__file__).with_name("editd-tests.el")
NAMES = re.findall(r"^\(ert-deftest (\S+)", CLAIMS.read_text(), re.MULTILINE)
SECONDS_MAX = 100

PROGRAM = os.environ.get("EDITD_TEST_EMACS") or shutil.which("emacs")
ELPA = Path("/usr/share/emacs/site-lisp/elpa-src")  # Debian's


def lint_folders() -> list[Path]:
    """Return the folders of package-lint and what it needs. One before 0.17 takes Emacs 28 for unreleased."""
    if named := os.environ.get("EDITD_TEST_PACKAGE_LINT"):
        return [Path(folder) for folder in named.split(os.pathsep)]
    new = [folder for folder in ELPA.glob("package-lint-0.*") if int(folder.name.split(".")[1]) >= 17]
    return [*new, *ELPA.glob("compat-*")] if new else []


LINT = lint_folders()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="emacs is not installed")


def emacs(*argv: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run batch Emacs, and return what it says."""
    assert PROGRAM is not None
    return subprocess.run(
        [PROGRAM, "-Q", "--batch", *argv],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=SECONDS_MAX,
        check=False,
        restore_signals=False,  # SIGPIPE stays ignored, as any Emacs but one in batch mode has it
    )


def test_emacs_saves_follows_and_undoes_through_the_daemon(place: Workplace, is_long: bool) -> None:
    """One Emacs for all the claims, so that two workers do not start it twice."""
    place.git("init", "--quiet", ".")
    place.git("init", "--quiet", "../own")
    own = hashlib.sha256(os.fsencode((place.folder / "own").resolve())).hexdigest()[:16]
    settings = config_folder(place) / "workspaces" / f"{own}.toml"
    settings.parent.mkdir()
    settings.write_text('[review]\nsocket = "own"\n')
    set_pin(place)  # one process is the author and the reviewer
    place.variables["EDITD_TEST_ROUNDS"] = "200" if is_long else "12"
    place.start().close()
    try:
        said = run(place)
    finally:
        end_what_emacs_started(place)
    passed = re.findall(r"^ +passed +\d+/\d+ +(\S+) ", said, re.MULTILINE)
    assert sorted(passed) == sorted(NAMES), said


def run(place: Workplace) -> str:
    environment = place.environment | {
        "EDITD_TEST_ROOT": str(place.root.resolve()),
        "EDITD_TEST_OWN_ROOT": str((place.folder / "own").resolve()),
        "EDITD_TEST_EDITCTL": str(place.provide_editctl() / "editctl"),
        "LC_ALL": "C.UTF-8",
    }
    files = ["-l", str(PACKAGE), "-l", str(CLAIMS)]
    done = emacs(
        "-L", str(PACKAGE.parent), *files, "-f", "ert-run-tests-batch-and-exit", environment=environment
    )
    return f"{done.stdout}{done.stderr}\nexit status {done.returncode}\n"


def end_what_emacs_started(place: Workplace) -> None:
    """The daemon that was killed has a successor, which is nobody's child. So is the second workspace's."""
    for root in (place.root, place.folder / "own"):
        place.editctl("-C", str(root), "stop")


def test_the_package_compiles_without_a_warning(tmp_path: Path) -> None:
    copy = tmp_path / PACKAGE.name
    shutil.copy(PACKAGE, copy)
    done = emacs("--eval", "(setq byte-compile-error-on-warn t)", "-f", "batch-byte-compile", str(copy))
    assert (done.returncode, done.stderr) == (0, "")
    assert copy.with_suffix(".elc").exists()


def test_checkdoc_has_nothing_to_say(tmp_path: Path) -> None:
    copy = tmp_path / PACKAGE.name
    shutil.copy(PACKAGE, copy)
    done = emacs("--eval", f'(checkdoc-file "{copy}")')
    assert (done.returncode, done.stderr) == (0, "")
    documented = PACKAGE.read_text()
    copy.write_text(re.sub(r'^  "Take back the newest undo\."\n', "", documented, flags=re.MULTILINE))
    assert emacs("--eval", f'(checkdoc-file "{copy}")').stderr, "it finds what is missing"


@pytest.mark.skipif(not LINT, reason="there is no package-lint 0.17 or later here (EDITD_TEST_PACKAGE_LINT)")
def test_package_lint_has_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "elpa").mkdir()
    setup = f'(setq package-user-dir "{tmp_path / "elpa"}" package-archives nil)'
    found = [word for folder in LINT for word in ("-L", str(folder))]
    lint = (*found, "--eval", setup, "-l", "package-lint", "-f", "package-lint-batch-and-exit")
    done = emacs(*lint, str(PACKAGE))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    copy = tmp_path / PACKAGE.name
    copy.write_text(PACKAGE.read_text().replace("(defun editd-merge ", "(defun merge-by-editd "))
    assert "merge-by-editd" in emacs(*lint, str(copy)).stderr, "it finds a name without the prefix"


def test_the_package_is_one_that_package_el_takes() -> None:
    form = '(progn (require \'package) (find-file (getenv "FILE")) (princ (package-buffer-info)))'
    done = emacs("--eval", form, environment=os.environ | {"FILE": str(PACKAGE)})
    assert done.returncode == 0, done.stderr
    assert "((emacs (28 1))) single" in done.stdout
