"""config.placeholders: the names of files in a command are arguments or values, and never code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from editd.config.placeholders import DATA_VARIABLES, fill, problem_of, problem_of_check, problem_of_name

NAME = "$(echo run >&2); `echo run >&2`.txt"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["sh", "-c", "cat {path}"], "{path} must be a whole argument"),
        (["sh", "-c", "cat '{file}'"], "{file} must be a whole argument"),
        (["x", "-={files}"], "{files} must be a whole argument"),
        (["prettier", "--stdin-filepath={path}"], "{path} must be a whole argument"),
        (["sh", "-c", "cat \"$P\"", "P={path}"], "{path} must be a whole argument"),
        (["{path}"], "{path} must not be the program"),
        (["env", "{path}"], "{path} must not be the program"),
        (["env", "-S", "{path}"], "{path} must not be the program"),
        (["nice", "-n", "5", "{file}"], "{file} must not be the program"),
        (["sh", "-c", "{path}"], "{path} must not be the text of a program"),
        (["/bin/bash", "-ec", "{path}"], "{path} must not be the text of a program"),
        (["bash", "-c", "-e", "{path}"], "{path} must not be the text of a program"),
        (["env", "A=1", "sh", "-c", "{path}"], "{path} must not be the text of a program"),
        (["python3.12", "-Ic", "{file}"], "{file} must not be the text of a program"),
        (["perl", "-ne", "{file}"], "{file} must not be the text of a program"),
        (["node", "--eval", "{path}"], "{path} must not be the text of a program"),
        (["awk", "{path}"], "{path} must not be the text of a program"),
        (["sed", "-n", "{path}"], "{path} must not be the text of a program"),
        (["sh", "{path}"], "{path} must not be the text of a program"),
        (["bash", "-c", "-o", "pipefail", "{path}"], "{path} must not be the text of a program"),
        (["bash", "-o", "pipefail", "{path}"], "{path} must not be the text of a program"),
        (["python3", "-W", "ignore", "{path}"], "{path} must not be the text of a program"),
        (["python3", "-m", "timeit", "{path}"], "{path} must not be the text of a program"),
        (["perl", "-e", "1", "-e", "{path}"], "{path} must not be the text of a program"),
        (["node", "-e", "1", "-r", "{path}"], "{path} must not be the text of a program"),
        (["sed", "-l", "5", "{path}"], "{path} must not be the text of a program"),
        (["sed", "-e", "p", "-e", "{path}"], "{path} must not be the text of a program"),
        (["awk", "-f", "{path}"], "{path} must not be the text of a program"),
        (["sudo", "sh", "-c", "{path}"], "{path} must not be an argument of sudo"),
        (["su", "-c", "{path}"], "{path} must not be an argument of su"),
        (["script", "-c", "{path}"], "{path} must not be an argument of script"),
        (["tmux", "new", "{path}"], "{path} must not be an argument of tmux"),
        (["find", ".", "-exec", "{path}", ";"], "{path} must not be an argument of find"),
        (["find", ".", "-exec", "sh", "-c", "{path}", ";"], "{path} must not be an argument of find"),
        (["ssh", "h", "--", "{path}"], "{path} must not be an argument of ssh"),
        (["make", "{path}"], "{path} must not be an argument of make"),
        (["git", "-c", "{path}", "x"], "{path} must not be an argument of git"),
        (["vim", "-c", "{path}"], "{path} must not be an argument of vim"),
        (["emacs", "--eval", "{path}"], "{path} must not be an argument of emacs"),
        (["xargs", "-I", "{path}", "true"], "{path} must not be the program"),
        (["xargs", "awk", "{path}"], "{path} must not be the text of a program"),
        (["mytool", "{file}"], "{file} must follow `--`, because editd does not know the program mytool"),
        (["deno", "run", "--", "{file}"], "{file} must not be an argument of deno"),
        (["go", "run", "--", "{file}"], "{file} must not be an argument of go"),
        (["tclsh8.6", "--", "{file}"], "{file} must not be an argument of tclsh8.6"),
        (["java", "--", "{file}"], "{file} must not be an argument of java"),
        (["node20", "{file}"], "{file} must not be the text of a program"),
        (["bash", "+O", "extglob", "{file}"], "{file} must not be the text of a program"),
        (["lua", "-e", "x=1", "{file}"], "{file} must not be the text of a program"),
        (["eslint", "-c", "{file}"], "{file} must not be the value of -c"),
        (["prettier", "--plugin", "{path}"], "{path} must not be the value of --plugin"),
        (["pylint", "--load-plugins", "{path}"], "{path} must not be the value of --load-plugins"),
        (["rubocop", "-r", "{file}"], "{file} must not be the value of -r"),
        (["sort", "--compress-program", "{path}"], "{path} must not be the value of --compress-program"),
        (["env", "PS4={path}", "sh", "-x"], "{path} must not be the value of PS4"),
        (["env", "PROMPT_COMMAND={path}", "x"], "{path} must not be the value of PROMPT_COMMAND"),
        (["env", "LD_PRELOAD={file}", "cat"], "{file} must not be the value of LD_PRELOAD"),
        (["env", "BASH_ENV={file}", "bash", "-c", ":"], "{file} must not be the value of BASH_ENV"),
        (["env", "NAME={files}", "sh", "-c", "x"], "{files} must be a whole argument, and becomes one"),
        (["cat", "{file}", "{files}"], "use either {file} or {files}"),
    ],
)  # fmt: skip
def test_a_placeholder_that_could_run_as_code_is_a_problem(command: list[str], problem: str) -> None:
    assert problem_of(command).startswith(problem)


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "format", "--stdin-filename", "{path}", "-"],
        ["sh", "-c", "cat \"$1\"", "sh", "{path}"],
        ["bash", "-n", "{file}"],
        ["perl", "-c", "{file}"],
        ["node", "--check", "{file}"],
        ["python3", "-m", "py_compile", "{file}"],
        ["sed", "-i", "s/a/b/", "{file}"],
        ["sed", "-i", "-f", "rules.sed", "{file}"],
        ["awk", "NF", "{files}"],
        ["env", "NAME={path}", "sh", "-c", "cat \"$NAME\""],
        ["nice", "-n", "5", "gofmt", "{file}"],
        ["env", "EDITD_FILE={file}", "mytool"],
        ["mytool", "--fix", "--", "{file}"],
        ["deno", "fmt", "{file}"],
        ["python3", "-I", "fmt.py", "--in", "{file}"],
        ["python3", "-c", "x", "{files}"],
        ["perl", "-i", "-pe", "s/a/b/", "{file}"],
        ["sed", "-n", "-e", "p", "-e", "q", "{file}"],
        ["/usr/local/bin/ruff", "check", "{file}"],
        ["jq", "--indent", "2", "."],
        ["awk", "{print}"],
        ["find", ".", "-exec", "grep", "x", "{}", ";"],
    ],
)  # fmt: skip
def test_an_argument_by_itself_and_the_value_of_a_variable_are_right(command: list[str]) -> None:
    assert problem_of(command) == ""


@pytest.mark.parametrize("variable", ["EDITD_PAGER", "EDITD_SOCKET", "EDITD_SESSION", "PATH", "GIT_PAGER"])
def test_no_variable_from_which_a_program_takes_code_or_a_server_has_a_name(variable: str) -> None:
    problem = problem_of(["env", f"{variable}={{path}}", "mytool"])
    assert f"must not be the value of {variable}" in problem


def test_no_variable_of_editds_own_programs_has_a_name() -> None:
    top = Path(__file__).resolve().parents[2]
    sources = (path.read_text() for folder in ("daemon", "client") for path in (top / folder).rglob("*.py"))
    own = {name for text in sources for name in re.findall(r"[\"'](EDITD_[A-Z_]+)[\"']", text)}
    assert {"EDITD_PAGER", "EDITD_SOCKET"} <= own
    assert not [name for name in own if DATA_VARIABLES.fullmatch(name)]


@pytest.mark.parametrize("name", ["a|", "<a", ">a", "a&", "&a", "+a", " +a", "a\n"])
def test_a_refusal_of_a_name_lists_the_characters(name: str) -> None:
    assert "`|`, `<`, `>` or `&` at an end, or `+` at the start" in problem_of_name(name)


def test_a_check_of_proposals_has_no_placeholder() -> None:
    assert problem_of_check(["pytest", "{path}"]).startswith("a check has no {path}")
    assert problem_of_check(["pytest", "-q"]) == ""


def test_only_whole_placeholders_are_filled() -> None:
    values = {"{file}": ["a b"], "{files}": ["a b", "c"]}
    assert fill(["x", "{files}", "-{file}", "{file}"], values) == ["x", "a b", "c", "-{file}", "a b"]
    assert fill(["sh", "-c", "A={file}"], values) == ["sh", "-c", "A={file}"]


@pytest.mark.parametrize(
    "command",
    [["sh", "-c", 'printf %s "$1"', "sh", "{path}"], ["env", "NAME={path}", "sh", "-c", 'printf %s "$NAME"']],
)
def test_a_name_full_of_commands_stays_a_name_in_a_real_shell(command: list[str]) -> None:
    assert problem_of(command) == ""
    argv = fill(command, {"{path}": [NAME]})
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (NAME, "")


@pytest.mark.parametrize("name", ["touch x|", "a/touch x| ", "|touch x", "<x", ">x", "a\nb", "a\x1b"])
def test_a_name_that_a_program_could_run_is_a_problem(name: str) -> None:
    assert "could run as code" in problem_of_name(name)


@pytest.mark.parametrize("name", ["a|b.txt", "-c.txt", "é <x> y.py", "src/a b.py", NAME])
def test_other_names_are_no_problem(name: str) -> None:
    assert problem_of_name(name) == ""
