"""The placeholders of a command: `{path}`, `{file}` and `{files}`, which become names of files.

A client chooses the names of files, so a name must never become a part of a program's text. The rule is
closed: what it does not allow is refused. A placeholder is

- the value of a variable from a short list that `env` sets: `env NAME={path} sh -c …`;
- an argument of a program that is known to take files (`config.file_programs`);
- an argument after the text or the script of a known interpreter;
- an argument after `--` of any other program, unless that program is known to run its arguments.

It is never the program itself, never a part of an argument, and never the value of an option that names code.

Some programs also run a name that they open: perl starts a command for `<>` if a name ends with `|`. So a
hook with a placeholder does not run on a file with such a name (`problem_of_name`).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from editd.config.file_programs import (
    FILE_PROGRAMS,
    FILE_VERBS,
    INTERPRETERS,
    LOADER_PAIRS,
    LOADERS,
    RUNNERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PLACEHOLDERS = ("{path}", "{file}", "{files}")
LAUNCHERS = frozenset(
    ("env", "nice", "ionice", "nohup", "setsid", "stdbuf", "timeout", "time", "chrt", "taskset", "xargs")
)  # programs that run the program in their arguments
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
DATA_VARIABLES = re.compile(r"(?:EDITD_)?(?:NAME|FILE|FILE_?NAME)|EDITD_PATH")
"""No program takes code from these, as bash does from `PS4`, and editctl from `EDITD_PAGER`."""

UNSAFE_NAMES = re.compile(r"[\x00-\x1f\x7f]|^\s*[|<>+&]|[|<>&]\s*$")
"""Names of files that perl and others run, redirect or split when they open them."""


def problem_of(command: Sequence[str]) -> str:
    """Return the first problem with the placeholders of a hook's command, or an empty text."""
    program = _program_at(command)
    for at, argument in enumerate(command):
        names = [name for name in PLACEHOLDERS if name in argument]
        if not names:
            continue
        variable = _variable(command, at, program)
        if argument not in PLACEHOLDERS and variable is None:
            return (
                f"{names[0]} must be a whole argument, or the value of a variable "
                f'(["env", "NAME={names[0]}", …]), because a file name in a longer text could run as code'
            )
        if variable is not None and not DATA_VARIABLES.fullmatch(variable):
            return (
                f"{names[0]} must not be the value of {variable}, because programs take code from variables: "
                f"use NAME, FILE, FILENAME or EDITD_PATH"
            )
        if variable is None and at <= program:
            return f"{names[0]} must not be the program, because a client chooses the name of a file"
        if variable is None and (problem := _problem_of_argument(command, at, program)):
            return f"{names[0]} {problem}"
    if "{files}" in command and any("{file}" in argument for argument in command):
        return "use either {file} or {files}"
    if any(_variable(command, at, program) and "{files}" in one for at, one in enumerate(command)):
        return "{files} must be a whole argument, and becomes one argument for each file"
    return ""


def problem_of_check(command: Sequence[str]) -> str:
    """Return the problem with the command of a check of proposals, which has no placeholders."""
    name = next((name for argument in command for name in PLACEHOLDERS if name in argument), None)
    return f"a check has no {name}: it runs in the workspace as the proposal would leave it" if name else ""


def problem_of_name(path: str) -> str:
    """Return the problem with the name of a file as an argument of any program, or an empty text."""
    if UNSAFE_NAMES.search(path):
        return (
            f"the name {path!r} could run as code: it has a control character, `|`, `<`, `>` or `&` at an "
            f"end, or `+` at the start"
        )
    return ""


def is_on_files(command: Sequence[str]) -> bool:
    """Return whether the command works on files in the scratch folder, not on its standard input."""
    return any("{file}" in argument or "{files}" in argument for argument in command)


def fill(command: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the arguments with names in place of whole placeholders, and of the values of variables."""
    return list(_fill(command, values))


def _fill(command: Sequence[str], values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    program = _program_at(command)
    for at, argument in enumerate(command):
        if argument in values:
            yield from values[argument]
        elif (variable := _variable(command, at, program)) and argument.partition("=")[2] in values:
            yield f"{variable}={values[argument.partition('=')[2]][0]}"
        else:
            yield argument


def _program_at(command: Sequence[str]) -> int:
    """Return the index of the program that runs in the end: behind `env`, `nice` and the like."""
    at = 0
    while at < len(command) - 1 and os.path.basename(command[at]) in LAUNCHERS:
        at += 1
        while at < len(command) - 1 and _is_of_launcher(command[at]):
            at += 1
    return at


def _is_of_launcher(argument: str) -> bool:
    """Return whether an argument is an option of a launcher, a variable, or a number such as a time."""
    return argument.startswith("-") or bool(ASSIGNMENT.fullmatch(argument)) or argument[:1].isdigit()


def _variable(command: Sequence[str], at: int, program: int) -> str | None:
    """Return the variable that `env` sets to a whole placeholder by this argument."""
    parts = ASSIGNMENT.fullmatch(command[at])
    is_of_env = parts is not None and 0 < at < program and os.path.basename(command[0]) == "env"
    return parts[1] if is_of_env and parts is not None and parts[2] in PLACEHOLDERS else None


def _problem_of_argument(command: Sequence[str], at: int, program: int) -> str:
    """Return the problem with a name as this argument of a program, or an empty text."""
    name, before = os.path.basename(command[program]), list(command[program + 1 : at])
    interpreter = next((one for one in INTERPRETERS if one.is_program(name)), None)
    if interpreter is not None:
        if interpreter.is_data(before):
            return ""
        return "must not be the text of a program: pass it as an argument after the text or the script"
    if before and (LOADERS.fullmatch(before[-1]) or (name, before[-1]) in LOADER_PAIRS):
        return f"must not be the value of {before[-1]}, from which a program takes code"
    if (name, *before[:1]) in FILE_VERBS:
        return ""
    if name in RUNNERS or name.rstrip("0123456789.") in RUNNERS:
        return f"must not be an argument of {name}, which runs programs"
    if name in FILE_PROGRAMS or "--" in before:
        return ""
    return f"must follow `--`, because editd does not know the program {name}: {_BY_SHELL}"


_BY_SHELL = """use `--`, or ["sh", "-c", 'exec PROGRAM "$1"', "sh", …]"""
