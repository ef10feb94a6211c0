"""Chromium without a driver: its DevTools protocol over a pipe, for the tests of the page."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = shutil.which("chromium")
SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05  # between two looks at a page: each costs the browser some milliseconds
COMMANDS, ANSWERS = 3, 4  # descriptors that --remote-debugging-pipe expects

MIDDLE = """
(() => {
  const one = document.querySelector('%s');
  one.scrollIntoView({ block: 'center' });
  const box = one.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()
"""


class Chromium:
    """A headless browser with a profile of its own. Debian's, because it needs no download."""

    def __init__(self) -> None:
        assert PROGRAM is not None
        self._profile = tempfile.TemporaryDirectory(prefix="editd-chromium-", ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        argv = [
            PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}", "about:blank",
        ]  # fmt: skip
        # A shell moves the pipes to their numbers: in the child nothing of Python runs after the fork.
        script = f'exec "$@" {COMMANDS}<&{commands} {ANSWERS}>&{answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *argv], pass_fds=[commands, answers],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": self._profile.name},
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def call(self, method: str, params: dict[str, Any] | None = None, session: str | None = None) -> Any:
        """Call a method of the protocol. Raises RuntimeError if the browser refuses it."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        with self._news:
            assert self._news.wait_for(lambda: number in self._replies, SECONDS_MAX), method
            reply = self._replies.pop(number)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']}")
        return reply["result"]

    def close(self) -> None:
        with contextlib.suppress(AssertionError, RuntimeError, OSError):
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        self._profile.cleanup()

    def _listen(self) -> None:
        unread = b""
        with contextlib.suppress(OSError):
            while piece := os.read(self._read, 1 << 20):
                unread += piece
                *messages, unread = unread.split(b"\0")
                with self._news:
                    for message in map(json.loads, messages):
                        if "id" in message:
                            self._replies[message["id"]] = message
                        else:
                            self.events.append(message)
                    self._news.notify_all()


class Tab:
    """A page of the browser."""

    def __init__(
        self, browser: Chromium, *, width: int = 1280, is_dark: bool = False, script: bool = True
    ) -> None:
        self._browser = browser
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call(
            "Target.createTarget", {"url": "about:blank", "browserContextId": self._context}
        )
        attached = browser.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        self._session = attached["sessionId"]
        self._first_event = 0  # of those that are about the page in front
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.show(width=width, is_dark=is_dark)
        if not script:
            self.call("Emulation.setScriptExecutionDisabled", {"value": True})

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return self._browser.call(method, params, self._session)

    def show(self, *, width: int, is_dark: bool) -> None:
        """Have the window this width, and the user's wish be a dark or a light page."""
        self.resize(width)
        features = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self.call("Emulation.setEmulatedMedia", {"features": features})

    def resize(self, width: int, height: int = 800) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", metrics)

    def go(self, address: str) -> None:
        """Open an address and wait until it is loaded."""
        seen = len(self._browser.events)
        self.call("Page.navigate", {"url": address})
        self.until(lambda: self._has_loaded(seen))

    def leave(self) -> None:
        """Go to an empty page, and forget the complaints of the one before."""
        self.call("Page.navigate", {"url": "about:blank"})
        self.until(lambda: self.run("location.href") == "about:blank")
        self._first_event = len(self._browser.events)

    def run(self, code: str) -> Any:
        """Return the value of an expression, or of its promise. Raises RuntimeError if it throws."""
        asked = {
            "expression": code,
            "returnByValue": True,
            "awaitPromise": True,
            "allowUnsafeEvalBlockedByCSP": False,
        }
        found = self.call("Runtime.evaluate", asked)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description"))
        return found["result"].get("value")

    def key(self, key: str) -> None:
        """Press a key: a character, or a name such as Tab."""
        text = key if len(key) == 1 else {"Enter": "\r"}.get(key, "")
        code = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "Escape": 27, " ": 32}.get(key, 0)
        pressed = {"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", {name: value for name, value in pressed.items() if value})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", "key": key, "windowsVirtualKeyCode": code})

    def type(self, text: str) -> None:
        self.call("Input.insertText", {"text": text})

    def fill(self, selector: str, text: str) -> None:
        """Type a text into a field. A page that is still being loaded may miss the click: it is repeated."""

        def is_focused() -> bool:
            self.click(selector)
            return bool(self.run(f"document.activeElement === document.querySelector({selector!r})"))

        self.until(lambda: self.run("document.readyState") == "complete")
        self.until(is_focused)
        self.type(text)
        self.until(lambda: self.run(f"document.querySelector({selector!r}).value") == text)

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse."""
        self.press(selector)()

    def press(self, selector: str) -> Callable[[], None]:
        """Press the button of the mouse on the middle of an element, and return what lets it go."""
        place = self.run(MIDDLE % selector.replace("'", '"'))
        mouse = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", {"type": "mousePressed", **mouse})
        return lambda: self.call("Input.dispatchMouseEvent", {"type": "mouseReleased", **mouse})

    def text(self, selector: str = "body") -> str:
        return str(self.run(f"document.querySelector({selector!r})?.innerText ?? ''"))

    def until(self, is_so: Callable[[], Any]) -> Any:
        """Wait until something is true, and return it."""
        end = time.monotonic() + SECONDS_MAX
        while time.monotonic() < end:
            if found := is_so():
                return found
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"it did not become so\n{self.text()}\n{self.complaints()}")

    def until_text(self, text: str, selector: str = "body") -> None:
        self.until(lambda: text in self.text(selector))

    def complaints(self) -> list[str]:
        """Return the errors that the page has logged, such as violations of its policy."""
        found = []
        for event in self._browser.events[self._first_event :]:
            if event.get("sessionId") != self._session:
                continue
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"])
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
        return found

    def roles(self) -> list[tuple[str, str]]:
        """Return the role and the name of each node of the accessibility tree that has both."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def screenshot(self) -> bytes:
        """Return a picture of the window, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", {"format": "png"})["data"])

    def close(self) -> None:
        self._browser.call("Target.disposeBrowserContext", {"browserContextId": self._context})

    def _has_loaded(self, seen: int) -> bool:
        return any(
            event.get("sessionId") == self._session and event["method"] == "Page.loadEventFired"
            for event in self._browser.events[seen:]
        )
