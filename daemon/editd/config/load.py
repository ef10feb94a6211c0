"""Loading: from the files to one checked configuration, or to all their errors.

The user's file comes first, `$XDG_CONFIG_HOME/editd/config.toml`. A workspace's own file,
`workspaces/<id>.toml` in the same folder, overrides it key by key. Neither is in a workspace, so that an
agent cannot loosen its own limits with an edit.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from bisect import bisect_left
from functools import cache
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import msgspec
import platformdirs
from msgspec import Struct

from editd.advice import Advice, command_term
from editd.config.schema import Config, ConfigSection
from editd.config.toml_lines import lines_of
from editd.config.value_parsers import FORMS
from editd.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


PROBLEMS_MAX = 100  # of one file; a hint for each takes milliseconds
FILE_BYTES_MAX = 64 * 1024  # a larger file is refused
_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class Key(Struct, frozen=True):
    """One key with its full name: `history.quota`."""

    name: str
    type: Any
    default: Any
    description: str
    example: Any  # a value worth showing; UNSET if the default is enough
    form: str | None
    needs_restart: bool


class ConfigProblem(Struct, frozen=True):
    """One error in a file, with its line."""

    file: str
    line: int | None
    key: str | None
    text: str
    hint: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        fact = self.text if self.key is None else f"{self.key}: {self.text}"
        return f"{where}: {fact}." + (f" {self.hint}" if self.hint else "")


class ConfigError(InvalidParams):
    """A wrong configuration; `problems` are all its errors."""

    def __init__(self, problems: list[ConfigProblem]) -> None:
        super().__init__(
            " ".join(map(str, problems)),
            hint=Advice("Correct the file, and run ", command_term("config check"), "."),
            data={"problems": [problem_facts(problem) for problem in problems]},
        )
        self.problems = problems


class ConfigSource(Struct, frozen=True):
    """The file that a value comes from."""

    file: str
    text: str

    def line(self, key: str) -> int | None:
        return lines_of(self.text).get(tuple(key.split(".")))


class LoadedConfig(Struct, frozen=True):
    """A whole configuration, and the source of each value that is not the default."""

    config: Config
    sources: Mapping[str, ConfigSource]


def config_path() -> str:
    """Return the path of the user's file."""
    return os.path.join(platformdirs.user_config_dir("editd"), "config.toml")


def workspace_config_path(workspace: str) -> str:
    """Return the path of the file of the workspace with this id, which overrides the user's."""
    return os.path.join(platformdirs.user_config_dir("editd"), "workspaces", f"{workspace}.toml")


def read_config(workspace: str | None = None) -> LoadedConfig:
    """Read both files, with defaults for missing ones. Raises ConfigError with all errors."""
    return _read_all(_paths(workspace))


def check_draft(text: str, path: str, workspace: str | None = None) -> None:
    """Raise ConfigError if `text` is wrong, or if the configuration would be wrong with it at `path`.

    A file that is neither the user's nor the workspace's is checked alone. Errors of the other
    file alone do not count.
    """
    check_text(text, path)
    both = _paths(workspace)
    alone = [] if path == both[-1] and workspace is not None else [path]
    for paths in filter(None, (alone, both if path in both else [])):
        try:
            _read_all(paths, {path: text})
        except ConfigError as after:
            if any(problem not in _own_problems(paths, path) for problem in after.problems):
                raise


def _own_problems(paths: list[str], but: str) -> list[ConfigProblem]:
    """Return the errors of each of these files alone, except `but`."""
    problems: list[ConfigProblem] = []
    for path in paths:
        try:
            check_text(_read(path) if path != but else "", path)
        except ConfigError as wrong:
            problems += wrong.problems
    return problems


def _paths(workspace: str | None) -> list[str]:
    return [config_path()] + ([] if workspace is None else [workspace_config_path(workspace)])


def _read_all(paths: list[str], drafts: Mapping[str, str] | None = None) -> LoadedConfig:
    """Read these files, later ones over earlier ones. `drafts` has texts to take in place of a file's."""
    values: dict[str, Any] = {}
    sources: dict[str, ConfigSource] = {}
    problems: list[ConfigProblem] = []
    for path in paths:
        try:
            text = drafts[path] if drafts and path in drafts else _read(path)
            read = check_text(text, path)
        except ConfigError as wrong:
            problems += wrong.problems
            continue
        values |= read
        sources |= dict.fromkeys(read, ConfigSource(path, text))
    config = None if problems else _build(Config, values)
    if config is not None:
        problems += _unknown_checks(config, sources)
    if config is None or problems:
        raise ConfigError(problems)
    return LoadedConfig(config, sources)


def check_text(text: str, name: str) -> dict[str, Any]:
    """Return the values in a file's text, by key. Raises ConfigError, which calls the file `name`."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_syntax_problem(str(error), text, name)]) from None
    except (RecursionError, ValueError):
        fact = "it is nested too deep, or has a number of too many digits"
        raise ConfigError([ConfigProblem(name, _first_unread(text), None, f"is not TOML: {fact}")]) from None
    values: dict[str, Any] = {}
    errors = _check(Config, tree, "", values)
    wrong = list(islice(errors, PROBLEMS_MAX))
    if wrong:
        lines = lines_of(text)
        problems = [
            ConfigProblem(name, lines.get(tuple(key.split("."))), key, problem, hint)
            for key, problem, hint in wrong
        ]
        if next(errors, None) is not None:
            more = f"has more errors than these {PROBLEMS_MAX}"
            problems.append(ConfigProblem(name, None, None, more))
        raise ConfigError(problems)
    return values


def keys(section: type[ConfigSection] = Config, above: str = "") -> Iterator[Key]:
    """Yield every key, in the order of the page."""
    for field in fields_of(section):
        name = above + field.name
        inner, meta = _type_of(field.type)
        if _is_section(inner):
            yield from keys(inner, name + ".")
            continue
        extra = meta.extra or {}
        example = meta.examples[0] if meta.examples else msgspec.UNSET
        yield Key(
            name, field.type, field.default, meta.description or "", example,
            extra.get("form"), bool(extra.get("restart")),
        )  # fmt: skip


def value_of(config: Config, key: str) -> Any:
    """Return the value of a key such as `history.keep.age`."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def problem_facts(problem: ConfigProblem) -> dict[str, Any]:
    """Return a problem as JSON."""
    return {"file": problem.file, "line": problem.line, "key": problem.key, "message": str(problem)}


def _unknown_checks(config: Config, sources: Mapping[str, ConfigSource]) -> Iterator[ConfigProblem]:
    """Yield an error for each rule whose check there is not: no edit of it would ever land."""
    known = [check.name for check in config.review.check]
    for number, rule in enumerate(config.review.rule, 1):
        if rule.check is None or (rule.check in known and rule.action == "land"):
            continue
        key, source = f"review.rule.{number}.check", sources["review.rule"]
        if rule.action != "land":
            yield ConfigProblem(source.file, source.line(key), key, 'goes with action = "land" only')
            continue
        matches = difflib.get_close_matches(rule.check, known, 1, 0.6)
        hint = f"Did you mean {matches[0]!r}?" if matches else "Add a `[[review.check]]` of that name."
        yield ConfigProblem(
            source.file, source.line(key), key, f"there is no review.check {rule.check!r}", hint
        )


def _read(path: str) -> str:
    """Return the text of a file, empty for a missing one. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError([ConfigProblem(path, None, None, error.strerror or str(error))]) from None
    if len(raw) > FILE_BYTES_MAX:
        raise ConfigError([ConfigProblem(path, None, None, f"is larger than {FILE_BYTES_MAX} bytes")])
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([ConfigProblem(path, line, None, "is not UTF-8, as TOML requires")]) from None


@cache  # the annotations are evaluated again in each call
def fields_of(section: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(section)


def _check(
    section: type[ConfigSection], tree: Mapping[str, Any], above: str, values: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Put valid values into `values`; yield key, fact and hint of each error."""
    known = {field.name: _type_of(field.type) for field in fields_of(section)}
    for key, value in tree.items():
        name = above + key
        if key not in known:
            is_of_list = any(field.required for field in fields_of(section))
            yield name, "there is no such key", _nearest_in(known, key) if is_of_list else _nearest(name)
            continue
        inner, meta = known[key]
        listed = _item_section(inner)
        if listed is not None:
            yield from _check_list(listed, value, name, values)
            continue
        if _is_section(inner):
            if isinstance(value, dict):
                yield from _check(inner, value, name + ".", values)
            else:
                yield name, f"expected a table, got {_format(value)}", _keys_of(inner, name)
            continue
        try:
            values[name] = _convert(value, inner, meta)
        except (ValueError, OverflowError) as error:  # msgspec's own error is a ValueError
            yield name, f"{_fact(str(error))}, got {_format(value)}", _choices(inner, value)


def _check_list(
    section: type[ConfigSection], value: object, name: str, values: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Check the tables of a list. Each is called by its number, and has a key `name`."""
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        yield name, f"expected tables, got {_format(value)}", f"Each begins with `[[{name}]]`."
        return
    made: list[Any] = []
    for number, table in enumerate(value, 1):
        above = f"{name}.{number}"
        entries: dict[str, Any] = {}
        missing = [field.name for field in fields_of(section) if field.required]
        missing = [key for key in missing if key not in table]
        wrong = [
            *_check(section, table, f"{above}.", entries),
            *((above, f"`{key}` is missing", "See docs/configuration.md.") for key in missing),
        ]
        yield from wrong
        if wrong:
            continue
        if any(other.name == table["name"] for other in made):
            yield f"{above}.name", f"{table['name']!r} is also the name of another table", ""
        made.append(_build(section, entries, f"{above}."))
    values[name] = tuple(made)


def _convert(value: Any, kind: Any, meta: msgspec.Meta) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("expected an integer of at most 64 bits, as TOML has them")
    form = (meta.extra or {}).get("form")
    return (
        FORMS[form](value)
        if form is not None
        else msgspec.convert(value, Annotated[_without_none(kind), meta])
    )


def _without_none(kind: Any) -> Any:
    """Return the type without None: TOML has no null, so msgspec's error must not offer it."""
    options = [option for option in get_args(kind) if option is not NoneType]
    return options[0] if NoneType in get_args(kind) else kind


def _build(section: type[ConfigSection], values: Mapping[str, Any], above: str = "") -> Any:
    fields: dict[str, Any] = {}
    for field in fields_of(section):
        inner, _ = _type_of(field.type)
        if _is_section(inner):
            fields[field.name] = _build(inner, values, f"{above}{field.name}.")
        elif above + field.name in values:
            fields[field.name] = values[above + field.name]
    return section(**fields)


def _type_of(annotated: Any) -> tuple[Any, msgspec.Meta]:
    """Return the type and its description."""
    metadata = getattr(annotated, "__metadata__", ())
    return (annotated.__origin__, metadata[0]) if metadata else (annotated, msgspec.Meta())


def _item_section(kind: Any) -> type[ConfigSection] | None:
    """Return the table that a list is of, or None if the type is no such list."""
    inner = get_args(kind)[0] if get_origin(kind) is tuple else None
    return inner if _is_section(inner) else None


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ConfigSection)


def _syntax_problem(message: str, text: str, name: str) -> ConfigProblem:
    at = _AT.search(message)
    last = len(text.rstrip("\n").split("\n"))
    line = int(at[1]) if at is not None and at[1] else last
    fact = message if at is None else message[: at.start()]
    return ConfigProblem(name, line, None, f"is not TOML: {fact}")


def _first_unread(text: str) -> int:
    """Return the line that Python itself refuses, rather than the grammar: no text with that line is read."""
    lines = text.split("\n")

    def is_refused(number: int) -> bool:
        try:
            tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            return False
        except (RecursionError, ValueError):
            return True
        return False

    return bisect_left(range(1, len(lines)), True, key=is_refused) + 1


def _nearest(name: str) -> str:
    known = [key.name for key in keys()]
    tables = sorted({key.rpartition(".")[0] for key in known} - {""})
    own = name.rpartition(".")[2]
    matches = difflib.get_close_matches(name, known + tables, 1, 0.6) or [
        key for key in known if key.rpartition(".")[2] == own
    ]
    return f"Did you mean `{matches[0]}`?" if matches else "Run `editctl config` to list all keys."


def _nearest_in(known: Mapping[str, object], key: str) -> str:
    matches = difflib.get_close_matches(key, known, 1, 0.6)
    return f"Did you mean `{matches[0]}`?" if matches else f"Its keys are {', '.join(known)}."


def _keys_of(section: type[ConfigSection], name: str) -> str:
    return f"Its keys are {', '.join(key.name for key in keys(section, name + '.'))}."


def _choices(kind: Any, value: Any) -> str:
    if get_origin(kind) is not Literal:
        return ""
    near = difflib.get_close_matches(str(value), get_args(kind), 1)
    return f"Did you mean {near[0]!r}?" if near else f"It is one of {', '.join(map(repr, get_args(kind)))}."


def _fact(message: str) -> str:
    """Return msgspec's message without the path, which the problem already has."""
    message = message.partition(" - at ")[0].partition(", got")[0].replace("`", "")
    if message.startswith("Invalid enum value"):
        return "is not one of its values"
    return message[:1].lower() + message[1:]


def _format(value: Any) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or an integer of too many digits
        return "a value too large to show"
    return text if len(text) <= 60 else text[:59] + "…"
