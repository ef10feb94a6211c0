"""The configuration: one TOML file of the user's, checked whole before anything is done with it."""

from __future__ import annotations

import codecs
import os
import tomllib
from typing import Annotated, Literal

import msgspec
import platformdirs

from editd.errors import InvalidParams


class Serena(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[serena]`: of the dialect of that name."""

    ignored_paths: tuple[str, ...] = ()  # gitignore patterns, beside those of the workspace


class Wcgw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[wcgw]`: what its tool may edit and write whole, as globs of absolute paths; else anything."""

    edit_globs: tuple[str, ...] | None = None
    write_globs: tuple[str, ...] | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`$XDG_CONFIG_HOME/editd/config.toml`; every key may be left out."""

    publish: Literal["exchange", "rename"] = "exchange"  # rename: fewer events for raw watchers, a weaker C4
    encoding: str | None = None  # for text that is not UTF-8, such as "latin-1"; else it is `not_text`
    idle_seconds: float = 0  # the daemon ends by itself after so long without a client; 0 is never
    regex_seconds: Annotated[float, msgspec.Meta(gt=0, le=60)] = 2.0  # for one regular expression of a tool's
    serena: Serena = Serena()
    wcgw: Wcgw = Wcgw()
    file_bytes_max: int = 64 * 1024 * 1024  # a larger file is neither read nor written: it is held in memory


def config_path() -> str:
    return os.path.join(platformdirs.user_config_dir("editd"), "config.toml")


def read_config(path: str | None = None) -> Config:
    """Read the file, or the defaults where there is none. Raises InvalidParams that names what is wrong."""
    path = path or config_path()
    try:
        with open(path, "rb") as file:
            config = msgspec.convert(tomllib.load(file), Config)
    except FileNotFoundError:
        return Config()
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidParams(f"{path}: {error}.", hint="The daemon starts when that is put right.") from error
    if config.encoding is not None:
        try:
            codecs.lookup(config.encoding)
        except LookupError:
            raise InvalidParams(f"{path}: encoding: {config.encoding!r} is not an encoding.") from None
    return config
