"""The rule for excluded paths: the defaults, the exceptions, and letter case."""

from __future__ import annotations

import pytest

from editd.config.schema import Config
from editd.engine.access import excluded_paths_of
from editd.errors import InvalidParams
from editd.values.excluded_paths import ExcludedPaths
from editd.values.path import WorkspacePath

DEFAULT = excluded_paths_of(Config())


@pytest.mark.parametrize(
    "path",
    [
        ".env", "a/b/.env", ".env.production", "app/.env.local", "server.pem", "keys/a.p12", "tls.key",
        "id_rsa", ".ssh/id_ed25519", "x/id_ecdsa", ".netrc", "home/.npmrc", ".pypirc", ".ENV", "a/Server.PEM",
        ".Env.Production", "attests/.env",
    ],
)  # fmt: skip
def test_the_default_excludes_common_secret_files_in_any_folder_and_letter_case(path: str) -> None:
    assert DEFAULT.covers(WorkspacePath.parse(path))


@pytest.mark.parametrize(
    "path",
    [
        ".env.example", "a/.env.sample", ".env.template", ".env.dist", ".ENV.EXAMPLE", "env", ".environment",
        "tests/.env", "a/tests/b/server.pem", "Tests/tls.key", "key.py", "id_rsa.pub", "pem", "a.pem.txt",
    ],
)  # fmt: skip
def test_examples_and_what_is_below_tests_are_kept(path: str) -> None:
    assert not DEFAULT.covers(WorkspacePath.parse(path))


@pytest.mark.parametrize("glob", ["**/cl\u00e9.key", "**/cle\u0301.key", "**/CL\u00c9.KEY"])
def test_a_rule_covers_a_name_in_both_unicode_forms_and_any_letter_case(glob: str) -> None:
    rule = ExcludedPaths([glob])
    for name in ("cl\u00e9.key", "cle\u0301.key", "CL\u00c9.key", "a/CLE\u0301.KEY"):
        assert rule.covers(WorkspacePath.parse(name))
    assert not rule.covers(WorkspacePath.parse("cle.key"))


def test_an_empty_rule_excludes_nothing() -> None:
    assert not ExcludedPaths().covers(WorkspacePath.parse(".env"))


def test_a_rule_comes_back_from_its_texts() -> None:
    rule = ExcludedPaths(["**/*.KEY"], ["public/"])
    again = ExcludedPaths.of(rule.texts)
    assert (again, hash(again)) == (rule, hash(rule))
    assert again != ExcludedPaths(["**/*.KEY"])
    assert again.covers(WorkspacePath.parse("a/b.key"))
    assert not again.covers(WorkspacePath.parse("public/b.key"))


def test_a_text_that_is_no_glob_is_refused() -> None:
    with pytest.raises(InvalidParams, match="empty name"):
        ExcludedPaths(["a//b"])
