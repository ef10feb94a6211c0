"""config.load: all that is wrong is told at once, with file, line, key and the nearest known one."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from editd.config.load import (
    PROBLEMS_MAX,
    ConfigError,
    check_text,
    config_path,
    keys,
    read_config,
    value_of,
    workspace_config_path,
)
from editd.config.schema import Config
from editd.config.toml_lines import PARSED_BYTES_MAX

if TYPE_CHECKING:
    from pathlib import Path


def wrong(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check_text(text, "c.toml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '\npublish = "renam"',
            "c.toml:2: publish: is not one of its values, got 'renam'. Did you mean 'rename'?",
        ),
        (
            "[history]\nqouta = 1",
            "c.toml:2: history.qouta: there is no such key. Did you mean `history.quota`?",
        ),
        ("quota = 1", "c.toml:1: quota: there is no such key. Did you mean `history.quota`?"),
        ("xyzzy = 1", "c.toml:1: xyzzy: there is no such key. Run `editctl config` to list all keys."),
        ("# x\nregex_seconds = 100", "c.toml:2: regex_seconds: expected float <= 60.0, got 100."),
        ('idle_seconds = "x"', "c.toml:1: idle_seconds: expected float, got 'x'."),
        (
            "history.keep = { count = 0 }",
            "c.toml:1: history.keep.count: expected int >= 1, got 0.",
        ),
        (
            'history.keep.age = "90"',
            (
                "c.toml:1: history.keep.age: expected a duration, "
                "such as \"90d\" (units: s, m, h, d, w), got '90'."
            ),
        ),
        ('protect = [\n"[a",\n]', "c.toml:1: protect: the glob '[a' has a [ that is not closed, got ['[a']."),
        ('encoding = "klingon"', "c.toml:1: encoding: 'klingon' is not an encoding, got 'klingon'."),
        ("serena = 3", "c.toml:1: serena: expected a table, got 3. Its keys are serena.ignored_paths."),
        ("a = 1\nb = = 2\n", "c.toml:2: is not TOML: Invalid value."),
        ("a = [1,\n", "c.toml:1: is not TOML: Invalid value."),
        ("a = 1\na = 2\n", "c.toml:2: is not TOML: Cannot overwrite a value."),
    ],
)  # fmt: skip
def test_a_problem_names_file_line_and_key_and_what_may_be_meant(text: str, said: str) -> None:
    assert wrong(text) == [said]


HOOK = '[[hook]]\nname = "a"\nglob = ["*.py"]\ncommand = ["x"]\n'
CHECK = '[[review.check]]\nname = "pytest"\ncommand = ["pytest"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("serena.ignored_paths = " + "[" * 20_000, "c.toml:2: is not TOML: it is nested too deep"),
        ("idle_seconds = 1" + "0" * 4999, "c.toml:2: is not TOML: it is nested too deep, or has a number of"),
        ("history.quota = 1" + "0" * 399, "c.toml:2: history.quota: expected an integer of at most 64 bits"),
        (
            "history.quota = 0x" + "f" * 9999,
            "c.toml:2: history.quota: expected an integer of at most 64 bits",
        ),
        (
            f'history.quota = "{"9" * 400}GiB"',
            "c.toml:2: history.quota: expected a size of at most a million TiB, got",
        ),
        (
            'history.quota = "9999999999GiB"',
            "c.toml:2: history.quota: expected a size of at most a million TiB, got",
        ),
        (
            'history.keep.age = "999999999999d"',
            "c.toml:2: history.keep.age: expected a duration of at most a thousand years, got",
        ),
        ("history.quota" + ".a" * 2_000 + " = 1", "c.toml:2: history.quota: expected a number of bytes"),
        ("a" + ".a" * 2_000 + " = 1", "c.toml:2: a: there is no such key"),
    ],
    ids=range(9),
)
def test_what_is_wrong_beyond_all_measure_is_told_as_other_wrong_values_are(text: str, said: str) -> None:
    [problem] = wrong("# mine\n" + text + "\nhistory.keep.count = 3\n")
    assert problem.startswith(said)
    assert len(problem) < 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hook = 1", "c.toml:1: hook: expected tables, got 1. Each begins with `[[hook]]`."),
        (HOOK + "secnds = 2", "c.toml:5: hook.1.secnds: there is no such key. Did you mean `seconds`?"),
        (HOOK + HOOK, "c.toml:6: hook.2.name: 'a' is also the name of another table."),
        (HOOK + "seconds = 0", "c.toml:5: hook.1.seconds: expected float > 0.0, got 0."),
        (
            HOOK + 'kind = "formt"',
            "c.toml:5: hook.1.kind: is not one of its values, got 'formt'. Did you mean 'format'?",
        ),
        (HOOK.replace('"x"', ""), "c.toml:4: hook.1.command: expected a list of a program and its arguments"),
        (HOOK.replace('"x"', '"./x"'), "c.toml:4: hook.1.command: the program must be a name in PATH"),
        (
            HOOK.replace('"x"', '"x", "-={files}"'),
            "c.toml:4: hook.1.command: {files} must be a whole argument",
        ),
        (
            HOOK.replace('"x"', '"sh", "-c", "cat {path}"'),
            "c.toml:4: hook.1.command: {path} must be a whole argument",
        ),
        (
            CHECK.replace('"pytest"]', '"pytest", "{path}"]'),
            "c.toml:3: review.check.1.command: a check has no {path}",
        ),
        (HOOK + 'with_files = ["../x"]', "c.toml:5: hook.1.with_files: "),
        (
            '[[hook]]\nname = "a"\nglob = ["*"]\n',
            "c.toml:1: hook.1: `command` is missing. See docs/configuration.md.",
        ),
    ],
)
def test_a_problem_of_a_table_in_a_list_says_in_which_and_on_which_line(text: str, said: str) -> None:
    (found,) = wrong(text)
    assert found.startswith(said)


def test_hooks_come_in_their_order_and_a_workspaces_own_in_place_of_the_users(home: Path) -> None:
    (home / "config.toml").write_text(HOOK + HOOK.replace('"a"', '"b"') + "seconds = 2\n")
    assert [hook.name for hook in read_config("0123").config.hook] == ["a", "b"]
    assert read_config("0123").config.hook[1].seconds == 2
    (home / "workspaces" / "0123.toml").write_text(HOOK.replace('"a"', '"c"'))
    assert [hook.name for hook in read_config("0123").config.hook] == ["c"]


def test_all_problems_are_told_at_once() -> None:
    found = wrong('publish = "x"\nidle_secnds = 3\n\n[history]\nquota = "much"\nkeep = { ages = "1d" }\n')
    assert [line.split(":")[1] for line in found] == ["1", "2", "5", "6"]


def test_a_right_file_gives_its_values_in_the_daemons_own_form() -> None:
    text = (
        'history.keep = { age = "90d", count = 5, bytes = "2GiB" }\nprotect = ["*.pem"]\nidle_seconds = 3\n'
    )
    assert check_text(text, "c.toml") == {
        "history.keep.age": 90 * 86400.0, "history.keep.count": 5, "history.keep.bytes": 2 << 30,
        "protect": ("*.pem",), "idle_seconds": 3.0,
    }  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "editd" / "workspaces").mkdir(parents=True)
    return tmp_path / "editd"


def test_without_a_file_everything_is_the_default(home: Path) -> None:
    loaded = read_config("0123")
    assert loaded.config == Config()
    assert not loaded.sources
    assert [config_path(), workspace_config_path("0123")] == [
        str(home / "config.toml"), str(home / "workspaces" / "0123.toml"),
    ]  # fmt: skip


def test_a_workspaces_own_file_goes_over_the_users_key_by_key(home: Path) -> None:
    (home / "config.toml").write_text('durability = "relaxed"\n[history.keep]\nage = "1d"\ncount = 3\n')
    (home / "workspaces" / "0123.toml").write_text("\n[history.keep]\ncount = 9\n")
    loaded = read_config("0123")
    assert loaded.config.history.keep.count == 9
    assert loaded.config.history.keep.age == 86400
    assert loaded.config.durability == "relaxed"
    assert loaded.sources["history.keep.count"].file.endswith("0123.toml")
    assert loaded.sources["history.keep.count"].line("history.keep.count") == 3
    assert loaded.sources["history.keep.age"].line("history.keep.age") == 3
    assert read_config("4567").config.history.keep.count == 3


def test_problems_of_both_files_are_told_together(home: Path) -> None:
    (home / "config.toml").write_text("x = 1\n")
    (home / "workspaces" / "0123.toml").write_bytes(b"# \xff\n")
    with pytest.raises(ConfigError) as caught:
        read_config("0123")
    assert [problem.line for problem in caught.value.problems] == [1, 1]
    assert "is not UTF-8" in caught.value.message


def test_what_is_too_large_or_no_file_is_refused(home: Path) -> None:
    (home / "config.toml").write_text("#" * 70_000)
    with pytest.raises(ConfigError, match="larger than 65536 bytes"):
        read_config()
    (home / "config.toml").unlink()
    (home / "config.toml").mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        read_config()


def test_the_default_of_every_key_is_what_a_configuration_of_nothing_has() -> None:
    for key in keys():
        assert value_of(Config(), key.name) == key.default


CHECKED = '[[review.rule]]\nname = "tested"\npaths = ["**"]\naction = "land"\ncheck = "pytest"\n'


def test_a_rule_may_name_a_check_of_the_other_file(home: Path) -> None:
    (home / "config.toml").write_text(CHECK)
    (home / "workspaces" / "abc.toml").write_text(CHECKED)
    review = read_config("abc").config.review
    assert (review.rule[0].check, review.check[0].name) == ("pytest", "pytest")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CHECKED, "5: review.rule.1.check: there is no review.check 'pytest'. Add a `[[review.check]]`"),
        (
            CHECK + CHECKED.replace('"pytest"', '"pytst"'),
            "8: review.rule.1.check: there is no review.check 'pytst'. Did you mean 'pytest'?",
        ),
        (
            CHECK + CHECKED.replace('"land"', '"ask"'),
            '8: review.rule.1.check: goes with action = "land" only',
        ),
    ],
)
def test_a_rule_whose_check_would_never_pass_is_wrong(home: Path, text: str, said: str) -> None:
    (home / "config.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config()
    (problem,) = caught.value.problems
    assert f"config.toml:{said}" in str(problem)


def test_a_long_file_of_wrong_keys_is_refused_after_a_bounded_amount_of_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed = 0

    def count(text: str) -> dict[str, object]:
        nonlocal parsed
        parsed += len(text)
        return tomllib.loads(text)

    text = "".join(f"a{number} = 1\n" for number in range(PROBLEMS_MAX * 20))
    counted = SimpleNamespace(loads=count, TOMLDecodeError=tomllib.TOMLDecodeError)
    monkeypatch.setattr("editd.config.load.tomllib", counted)
    monkeypatch.setattr("editd.config.toml_lines.tomllib", counted)
    problems = wrong(text)
    assert problems[0].startswith("c.toml:1: a0: there is no such key.")
    assert problems[-1] == "c.toml: has more errors than these 100."
    assert len(problems) == PROBLEMS_MAX + 1
    assert parsed <= PARSED_BYTES_MAX + len(text)
    parsed = 0
    [problem] = wrong(text + "x = " + "[" * 2000)
    assert problem.startswith(f"c.toml:{PROBLEMS_MAX * 20 + 1}: is not TOML: it is nested too deep")
    assert parsed < 20 * len(text)
