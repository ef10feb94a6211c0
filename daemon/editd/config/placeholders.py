"""The placeholders of a command: `{path}`, `{file}` and `{files}`, which become names of files.

A client chooses the names of files, so a name must never become a part of a program's text. A placeholder is
a whole argument, or the value of a variable that `env` sets: `env NAME={path} sh -c …`. It is neither the
program itself nor the script of an interpreter.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PLACEHOLDERS = ("{path}", "{file}", "{files}")
LAUNCHERS = frozenset(
    ("env", "nice", "ionice", "nohup", "setsid", "stdbuf", "timeout", "time", "chrt", "taskset", "xargs")
)  # programs that run the program in their arguments
INTERPRETERS: Sequence[tuple[re.Pattern[str], re.Pattern[str]]] = tuple(
    (re.compile(program), re.compile(flag))
    for program, flag in (
        (r"(ba|da|z|k|mk|a|fi|c|tc)?sh|busybox|nu|xonsh", r"-[A-Za-z]*c[A-Za-z]*|--command"),
        (r"python[\d.]*|pypy[\d.]*", r"-[A-Za-z]*c"),
        (r"perl[\d.]*", r"-[A-Za-z\d]*[eE]"),
        (r"ruby[\d.]*|lua[\d.]*|luajit", r"-[A-Za-z\d]*e"),
        (r"node|nodejs|deno|bun", r"-[A-Za-z]*[ep]|--eval|--print|eval"),
        (r"php[\d.]*", r"-[A-Za-z]*r"),
        (r"sed", r"-[A-Za-z]*e|--expression"),
    )
)  # the name of a program, and the flag before an argument that it runs as text
FIRST_IS_TEXT = re.compile(r"[gmn]?awk|sed")  # without a flag, the first argument is the text
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
CODE_VARIABLES = re.compile(
    r"LD_.*|DYLD_.*|PATH|IFS|ENV|BASH_.*|SHELLOPTS|PYTHON.*|PERL.*|RUBY.*|NODE_.*|LUA_.*|GIT_.*|EDITOR|PAGER"
)  # from which some program takes code, or the place of code


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
                f"{names[0]} must be an argument by itself, or the value of a variable "
                f'(["env", "NAME={names[0]}", …]), because a file name in a longer text could run as code'
            )
        if variable is not None and CODE_VARIABLES.fullmatch(variable):
            return f"{names[0]} must not be the value of {variable}, from which programs take code"
        if variable is None and at <= program:
            return f"{names[0]} must not be the program, because a client chooses the name of a file"
        if variable is None and _is_text(command, at, program):
            return f"{names[0]} must not be the text of a program: pass it as an argument after the text"
    if "{files}" in command and any("{file}" in argument for argument in command):
        return "use either {file} or {files}"
    if any(_variable(command, at, program) and "{files}" in one for at, one in enumerate(command)):
        return "{files} must be an argument by itself, and becomes one argument for each file"
    return ""


def problem_of_check(command: Sequence[str]) -> str:
    """Return the problem with the command of a check of proposals, which has no placeholders."""
    name = next((name for argument in command for name in PLACEHOLDERS if name in argument), None)
    return f"a check has no {name}: it runs in the workspace as the proposal would leave it" if name else ""


def is_on_files(command: Sequence[str]) -> bool:
    """Return whether the command works on files in the scratch folder, not on its standard input."""
    return any("{file}" in argument or "{files}" in argument for argument in command)


def filled(command: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the arguments with names in place of whole placeholders, and of the values of variables."""
    return list(_filled(command, values))


def _filled(command: Sequence[str], values: Mapping[str, Sequence[str]]) -> Iterator[str]:
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


def _is_text(command: Sequence[str], at: int, program: int) -> bool:
    """Return whether an interpreter would run this argument as the text of a program."""
    name, before = os.path.basename(command[program]), command[program + 1 : at]
    is_first = all(one.startswith("-") for one in before)
    if FIRST_IS_TEXT.fullmatch(name) and is_first and not {"-f", "--file"} & set(before):
        return True
    for interpreter, flag in INTERPRETERS:
        flags = [index for index, one in enumerate(before) if flag.fullmatch(one)]
        if interpreter.fullmatch(name) and flags:
            return all(one.startswith("-") for one in before[flags[-1] + 1 :])
    return False
