"""The PIN that lets a person decide about proposals: a file of the user's, with a hash by scrypt.

`editctl review pin` writes the file, and the daemon compares. The PIN itself is nowhere. It is never an
argument or an environment variable, which other programs of the user can read. For scrypt, see RFC 7914.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets

import msgspec
import platformdirs
from msgspec import Struct

from editd.errors import InvalidParams, IoError

SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 1  # some 50 ms and 16 MiB a try
PIN_CHARACTERS_MIN = 4
DIGEST_BYTES = 64


class PinHash(Struct, frozen=True):
    """The content of the PIN's file, as JSON."""

    salt: str  # hex
    digest: str  # hex

    def __post_init__(self) -> None:
        if len(bytes.fromhex(self.digest)) != DIGEST_BYTES or not bytes.fromhex(self.salt):
            raise ValueError("not a hash")

    def matches(self, pin: str) -> bool:
        """Return whether this is the PIN. Takes some 50 ms."""
        digest = _scrypt(pin, bytes.fromhex(self.salt))
        return hmac.compare_digest(digest, bytes.fromhex(self.digest))


def hash_pin(pin: str) -> PinHash:
    """Return the hash of a new PIN, with a new salt. Raises InvalidParams for a short one."""
    if len(pin) < PIN_CHARACTERS_MIN:
        raise InvalidParams(f"A PIN has at least {PIN_CHARACTERS_MIN} characters.")
    salt = secrets.token_bytes(16)
    return PinHash(salt.hex(), _scrypt(pin, salt).hex())


def read_pin(path: str) -> PinHash | None:
    """Return the hash in the PIN's file, or None without a file. Raises IoError."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=PinHash)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IoError(error, "The file of the PIN cannot be read") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise IoError(OSError(str(error)), f"The file of the PIN, {path}, is damaged") from error


def pin_path() -> str:
    """Return the path of the PIN's file, beside the user's configuration."""
    return os.path.join(platformdirs.user_config_dir("editd"), "review.pin")


def _scrypt(pin: str, salt: bytes) -> bytes:
    memory = 256 * SCRYPT_N * SCRYPT_R  # twice the need
    password = pin.encode("utf-8", "surrogateescape")
    return hashlib.scrypt(password, salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, maxmem=memory)
