"""The variables that a daemon keeps of the shell that starts it.

A daemon outlives its first client, and each of its processes would have the tokens and cloud keys of that
client's shell. So only the listed variables are kept. Git needs them for a server: ssh, proxies,
certificates, Kerberos, and the credential helpers.

The client starts a daemon with these alone, and a daemon that is started in another way drops the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

_USER = {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "TZDIR", "USER"}
_FOLDERS = {
    "XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME", "XDG_DATA_DIRS", "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
}  # fmt: skip
_EDITD = {"EDITD_SOCKET", "EDITD_SYSTEM"}  # not EDITD_TOKEN, which is one client's
_INTERPRETER = {
    "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONHASHSEED",
    "PYTHONHOME", "PYTHONIOENCODING", "PYTHONMALLOC", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONUTF8",
}  # fmt: skip
_SYSTEMD = {
    "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET",
    "WATCHDOG_PID", "WATCHDOG_USEC",
}  # fmt: skip
_GIT = {
    "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_PROXY_COMMAND", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT",
}  # fmt: skip
_SERVERS = {
    "CURL_CA_BUNDLE", "DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME", "NIX_SSL_CERT_FILE", "PASSWORD_STORE_DIR",
    "SSH_AGENT_PID", "SSH_AUTH_SOCK", "SSL_CERT_DIR", "SSL_CERT_FILE",
}  # fmt: skip
_PROXIES = {f"{kind}_proxy" for kind in ("all", "ftp", "http", "https", "no")}
_KEPT = frozenset(
    _USER | _FOLDERS | _EDITD | _INTERPRETER | _SYSTEMD | _GIT | _SERVERS | _PROXIES
    | {name.upper() for name in _PROXIES}
)  # fmt: skip
_PREFIXES = ("GIT_CONFIG_", "GIT_HTTP_", "GIT_SSL_", "KRB5", "LC_")


def is_kept(name: str) -> bool:
    """Return whether a daemon keeps a variable."""
    return name in _KEPT or name.startswith(_PREFIXES)


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a daemon keeps."""
    return {name: value for name, value in environment.items() if is_kept(name)}


def drop_others(environment: MutableMapping[str, str]) -> None:
    """Remove the variables that a daemon does not keep."""
    for name in [name for name in environment if not is_kept(name)]:
        del environment[name]
