"""One host of a random run: its daemon, its client, and what goes wrong around it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pygit2

from editd.system.frames import read_frame, write_frame
from support.crash_checks import child, held, replayed, transactions, versions, wait_until
from support.fork_server import server as fork_server
from support.hosts import forget_clocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd_client.client import Client
    from support.workplace import Workplace

SECRET_FILE, IGNORED_FILE = ".env", "build.log"
SECRET = "this stays on its host"
ALONE_TWICE = 2  # refused so often, a transaction may be kept back

# A git that is cut off while there is a file beside it. Of its calls one in 30 fails, of its pushes one in 10
# succeeds without an answer, and one in 20 is killed. It notes the origin of a transaction if a push of it
# alone fails. The second parent of an entry set aside is no other transaction. If {words} is set, it speaks
# German, and says the opposite of its result.
GIT = """#!/bin/sh
git={git} words={words}
say() {{
  if [ -z "$words" ]; then cat "$1" >&2; return; fi
  if [ "$2" = 0 ]; then echo "! [rejected] (stale info)"; echo "fatal: $(od -An -N9 -c /dev/urandom)"
  else echo "Everything up-to-date"; echo "Done"; fi >&2
  tr a-z n-za-m < "$1" >&2
}}
note() {{
  for last; do case "$last" in --force-with-lease=*) expected=${{last##*:}};; esac; done
  commit=${{last%%:*}} ref=${{last#*:}}
  now=$("$git" --git-dir {server} rev-parse "$ref")
  [ -z "$now" ] || [ "$now" = "$expected" ] || return
  [ "$("$git" --git-dir . rev-list --first-parent --count "$expected..$commit")" = 1 ] || return
  "$git" --git-dir . cat-file commit "$commit" | sed -n "s/^Origin: //p" >> {refused}
}}
[ -z "$words" ] || export LC_ALL=C.UTF-8 LANGUAGE=de
drawn=$(od -An -N1 -tu1 /dev/urandom)
case "$*" in
*" push "*)
  said=$(mktemp {said}.XXXXXX) status=1
  if [ -e {cut} ] || [ $drawn -le 8 ]; then :
  elif [ $drawn -le 32 ]; then "$git" "$@" > "$said" 2>&1
  elif [ $drawn -le 44 ]; then timeout -s KILL 0.0$((drawn % 8 + 1)) "$git" "$@" > "$said" 2>&1; status=$?
  else "$git" "$@" > "$said" 2>&1; status=$?; fi
  [ $status = 0 ] || case "$*" in *--force-with-lease=refs/heads/*) note "$@" 2> /dev/null;; esac
  say "$said" $status
  rm -f "$said"
  exit $status;;
*)
  [ ! -e {cut} ] && [ $drawn -gt 8 ] || exit 1
  [ -n "$words" ] || exec "$git" "$@"
  said=$(mktemp {said}.XXXXXX)
  "$git" "$@" 2> "$said"; status=$?
  say "$said" $status
  rm -f "$said"
  exit $status;;
esac
"""


@dataclass
class Host:
    """One daemon of a run, and its client."""

    name: str
    place: Workplace
    client: Client
    begun_with: Mapping[str, str] = field(default_factory=dict)  # its files, if it has begun the log
    has_ignored: bool = False  # git ignores a file here that the other hosts share

    @property
    def cut(self) -> Path:
        """The file that cuts this host off."""
        return self.place.folder / "cut"

    @property
    def refused(self) -> Path:
        """The file with the origins that the server refused alone."""
        return self.place.folder / "refused"

    @property
    def copy_of_log(self) -> Path:
        return self.place.state / "remote" / "log.git"

    def kill(self) -> None:
        """Kill the daemon, and start it again."""
        self.end()
        self.client = self.place.start()

    def end(self) -> None:
        """Kill the daemon."""
        self.client.close()
        process = self.place.process
        if process is not None and process.poll() is None:
            self.place.kill()
        if not self.place.is_forked:
            forget_clocks()

    def end_with_children(self) -> None:
        """Kill the daemon, and wait for the processes that have outlived it, such as git and a scan."""
        self.end()
        wait_until(lambda: not self._is_running(), "a process does not end")

    def _is_running(self) -> bool:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                if os.fsencode(f"{self.place.folder}/") in process.read_bytes():
                    return True
        return False

    def kill_exchange(self) -> None:
        """Kill the process of the exchange with the git that it has called, if there is one."""
        pid = child(self.place, "editd.remote.exchange_worker")
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def kept_back(self) -> set[str]:
        """Return the origins of the transactions that this host may have kept back."""
        lines = self.refused.read_text().split() if self.refused.exists() else []
        return {origin for origin, count in Counter(lines).items() if count >= ALONE_TWICE}

    def files(self) -> dict[str, bytes]:
        """Return the files of this host, without those that it shares with nobody."""
        files = self.place.files()
        links = (path for path in self.place.root.rglob("*") if path.is_symlink())
        files |= {str(path.relative_to(self.place.root)): os.fsencode(os.readlink(path)) for path in links}
        files.pop(SECRET_FILE, None)
        if self.has_ignored:
            assert files.pop(IGNORED_FILE).decode() == f"{SECRET}\n", "an ignored file was overwritten"
        return files

    def check(self) -> None:
        """Check this host's history, and that all its files are in it (L7)."""
        self.client.settle()
        assert self.client.check().problems == []
        start = versions({path: content.encode() for path, content in self.begun_with.items()})
        recorded = {
            path: version
            for path, version in replayed(transactions(self.client), start).items()
            if not (self.place.root / path).is_symlink()
        }
        now = versions(held(self.place))
        if self.has_ignored:
            recorded.pop(IGNORED_FILE, None)  # as it was found
            del now[IGNORED_FILE]
        differing = {path for path in now.keys() | recorded.keys() if now.get(path) != recorded.get(path)}
        assert not differing, f"L7: {self.name} has files that are not in its history: {differing}"

    def use_faulty_git(self, server: Path, *, has_words: bool) -> None:
        """Use the git with faults from the next start of the daemon on."""
        folder = self.place.folder
        program = folder / "bin" / "git"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            GIT.format(
                git=shutil.which("git"), words="yes" if has_words else "", server=server, cut=self.cut,
                refused=self.refused, said=folder / "said",
            )
        )  # fmt: skip
        program.chmod(0o755)
        self.place.variables["PATH"] = f"{program.parent}:{os.environ['PATH']}"

    def exchange_alone(self) -> None:
        """Have one round of the exchange without the daemon, which is killed: it writes nothing else (L7).

        The state afterwards is that of a daemon that was killed before it carried out the answer.
        """
        self.end_with_children()
        before = self._digests()
        place = self.place
        asked = json.loads((place.state / "remote.json").read_text())
        head = str(pygit2.Repository(str(place.store)).references["refs/heads/history"].target)
        asked |= {"do": "round", "head": head, "may_land": True, "proposed": [], "settled": [], "listed": 0}
        argv = ["-P", "-m", "editd.remote.exchange_worker", str(place.state), str(place.runtime)]
        (its_stdin, stdin), (stdout, its_stdout) = os.pipe(), os.pipe()
        process = fork_server().start(argv, place.environment, {0: its_stdin, 1: its_stdout, 2: 2})
        os.close(its_stdin)
        os.close(its_stdout)
        with open(stdin, "wb", buffering=0) as requests, open(stdout, "rb") as answers:
            write_frame(requests, asked)
            answer = read_frame(answers)
        process.wait(60)
        assert answer is not None, "the exchange ended without an answer"
        after = self._digests()
        written = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert not written, f"L7: the exchange has written {written}"
        self.client = place.start()

    def _digests(self) -> dict[str, str]:
        """Return all files of the state folder and the workspace, but for the copy of the log."""
        own = {self.copy_of_log, self.copy_of_log.with_name("taken.json")}
        return {
            str(path): hashlib.sha1(path.read_bytes()).hexdigest()
            for top in (self.place.state, self.place.root)
            for path in top.rglob("*")
            if path.is_file() and not own & {path, *path.parents}
        }
