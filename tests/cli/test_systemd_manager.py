"""The units in a real `systemd --user`, in namespaces of its own: the long form alone, and as root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from editd.system.confinement import landlock_version
from support.workplace import TOP

UID = 1000
SYSTEMD = "/lib/systemd/systemd"
# Arguments: folder, user, and the script to be run beside the manager; nothing of the machine's is touched.
MANAGER = r"""
set -eu
folder=$1 uid=$2 script=$3
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/systemd/unit-root /run/systemd/mount-rootfs /run/user/$uid
chmod 700 /run/user/$uid; chown $uid /run/user/$uid
umount -R /sys/fs/cgroup || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
group=/sys/fs/cgroup/editd-test-$(basename "$folder")
mkdir "$group" "$group/user"; chown -R $uid:$uid "$group"
as="setpriv --reuid $uid --regid $uid --clear-groups --inh-caps=-all env -i PATH=/usr/bin:/bin"
as="$as HOME=$folder/home XDG_RUNTIME_DIR=/run/user/$uid"
join="echo \$\$ > $group/user/cgroup.procs"
sh -c "$join; exec $as SYSTEMD_LOG_TARGET=console $0 --user --unit=basic.target" &
manager=$!
until [ -S /run/user/$uid/systemd/private ]; do kill -0 $manager; sleep 0.05; done
code=0
$as PYTHONPATH="$PYTHONPATH" PYTHONDONTWRITEBYTECODE=1 PYTHON="$PYTHON" bash -eu "$script" || code=$?
kill $manager; wait $manager || true
exit $code
"""
SCRIPT = r"""
exec 2>&1
e() { "$PYTHON" -P -m editd_client "$@"; }
cd "$HOME"; mkdir -p 'a $HOME 100%' .config/systemd/user/editd@.service.d; cd a*; git init -q .
cat > ~/.config/systemd/user/editd@.service.d/test.conf <<X
[Service]
Environment=PYTHONPATH=$PYTHONPATH PYTHONDONTWRITEBYTECODE=1
WatchdogSec=2
ExecStart=
ExecStart=:$PYTHON $HOME/hanging.py --foreground -C %f
ExecStartPre=/bin/bash $HOME/probe %f
X
cat > ~/probe <<'X'
exec > "$1/closed"
for d in "$HOME" /tmp "$XDG_RUNTIME_DIR" "$1" "$HOME/.local/state/editd"; do
    touch "$d/probe" || echo "$d"
done
X
unit=editd@$(systemd-escape -p "$PWD").service
show() { systemctl --user show --value -p "$1" "$unit"; }
e write first.txt --json <<< one > /dev/null       # by a daemon of editctl's own
own=$(e status --json | jq .pid)
e systemd install --now --json > /dev/null
e status --json | jq -e '.head >= 1'                # a client that waits for the handing over
test "$(show MainPID)" = "$(e status --json | jq .pid)"
test "$(show MainPID)" != "$own"
test "$(sort closed | tr '\n' ' ')" = "$(printf '%s\n' "$HOME" /tmp "$XDG_RUNTIME_DIR" | sort | tr '\n' ' ')"
test -e probe; test -e ~/.local/state/editd/probe
e write a.txt <<< hello; e replace a.txt hello bye; e undo; test "$(cat a.txt)" = hello
call='{"relative_path":"a.txt","needle":"h(e)llo","repl":"$!1","mode":"regex"}'
e tool serena replace_content --args "$call"
e write b.txt <<< b; git config user.name a; git config user.email a@example.org
e publish --from "$(e log --json -n1 | jq '.transactions[0].seq')" -m one; git log --oneline
e check
systemctl --user reload "$unit"
kill -9 "$(show MainPID)"; e status > /dev/null; test "$(show NRestarts)" = 1
kill -USR1 "$(show MainPID)"; e status > /dev/null; test "$(show NRestarts)" = 2   # the watchdog
e stop; test "$(show ActiveState)" = inactive; e start; test "$(show ActiveState)" = active
fails() { if "$@"; then echo "it worked: $*"; exit 1; fi; }
weaker() { e status --json | jq -r '.weaker[]'; }
weaker | grep -q 'The systemd unit forbids the network'
weaker | grep -q 'The systemd unit forbids namespaces'
weaker | grep -q 'The systemd unit makes your home folder read-only'
git init -q --bare "$HOME/served/log.git"; git -C "$HOME/served/log.git" config daemon.receivepack true
git daemon --listen=127.0.0.1 --port=$PORT --export-all --base-path="$HOME/served" --reuseaddr &
served=$!
until git ls-remote git://127.0.0.1:$PORT/log.git > /dev/null 2>&1; do kill -0 $served; sleep 0.05; done
fails e remote init --yes git://127.0.0.1:$PORT/log.git                     # RestrictAddressFamilies=AF_UNIX
e systemd install --now --remote --json > /dev/null; e stop
e remote init --yes git://127.0.0.1:$PORT/log.git
weaker > after
fails grep 'The systemd unit forbids the network' after
fails grep 'The systemd unit forbids namespaces' after
$LANDLOCK grep -E 'Landlock|seccomp' after
git --git-dir "$HOME/served/log.git" for-each-ref | grep -q .
e remote leave; kill $served
e systemd uninstall; ! systemctl --user is-active "$unit"
e start; e stop
echo all of it
"""


def python_for_all() -> str | None:
    """A Python of this version that another user can run."""
    for python in (sys.executable, "/usr/bin/python3"):
        asked = [
            "setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "--inh-caps=-all",
            "sh", "-c", 'exec "$0" -c "import sys; print(sys.version_info[:2])"', python,
        ]  # fmt: skip
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.stdout.strip() == str(sys.version_info[:2]):
            return python
    return None


def test_the_unit_serves_hands_over_restarts_and_writes_nowhere_else(is_long: bool) -> None:
    if not is_long:
        pytest.skip("a manager of its own is started in the long form: `pytest --long`")
    missing = [name for name in ("unshare", "setpriv", "systemctl", "jq") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing or not os.path.exists(SYSTEMD):
        pytest.skip(f"it wants to be root, and systemd; missing: {missing}")
    python = python_for_all()
    if python is None:
        pytest.skip("there is no Python of this version that another user can run")
    with tempfile.TemporaryDirectory(prefix="editd-manager-", dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        (folder / "home").mkdir()
        (folder / "home/hanging.py").write_text(
            "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: time.sleep(60))\n"
            "from editd.cli import main\nmain()\n"
        )
        shutil.chown(folder / "home", UID, UID)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        landlock = "fails" if landlock_version() else ""
        (folder / "script").write_text(SCRIPT.replace("$PORT", str(port)).replace("$LANDLOCK", landlock))
        paths = [str(TOP / "daemon"), str(TOP / "client"), sysconfig.get_path("purelib")]
        done = subprocess.run(
            ["unshare", "-m", "-p", "-f", "--mount-proc", "--propagation", "private", "--kill-child",
             "bash", "-c", MANAGER, SYSTEMD, made, str(UID), str(folder / "script")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHON": python},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            for group, _, _ in os.walk(f"{top}/editd-test-{folder.name}", topdown=False):
                os.rmdir(group)
        assert done.stdout.endswith("all of it\n"), f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
