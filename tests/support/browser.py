"""A real chromium without a window, driven by its DevTools protocol over a pipe: no driver, no port, no other package.

The messages are JSON, each with a null byte behind it: chromium reads them from descriptor 3 and answers on 4
(`--remote-debugging-pipe`); https://chromedevtools.github.io/devtools-protocol has the methods.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no chromium here (apt-get install chromium; `make nodes-tools`)"
_SECONDS = 60
_KEYS = {
    "Enter": 13,
    "Escape": 27,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Tab": 9,
    "Home": 36,
    "End": 35,
}


def program() -> str | None:
    """Return the path of a chromium; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """Say what chromium answered instead of a result."""


class Browser:
    """Hold a running chromium and one page in it."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._number, self._rest, self._session = 0, b"", ""
        self.console: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return what a method of the protocol answers; raise BrowserError."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _SECONDS
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self._seen(answer)

    def new_page(self) -> None:
        """Open an empty page, and note what it says on its console and what it asks the network for."""
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(1440, 900)
        self.console.clear()
        self.requests.clear()

    def open(self, url: str, scripts: bool = True, ready: str = "document.documentElement?.dataset.ready") -> None:
        """Open an address in a new page and wait until it says that it is ready."""
        self.new_page()
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=url)
        if scripts:
            self.wait(ready)
        else:
            time.sleep(0.5)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page; raise BrowserError where it throws."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 30) -> Any:
        """Return an expression's value as soon as it is true; raise BrowserError."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if value := self.evaluate(expression):
                return value
            time.sleep(0.02)
        raise BrowserError(f"not within {seconds} s: {expression}; console: {self.console}")

    def press(self, key: str) -> None:
        """Press a key as a person does."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, wherever it is on the page; raise BrowserError where it is not shown."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{found}.scrollIntoView({{block: 'center'}})")
        box = self.evaluate(f"(b => [b.x + b.width / 2, b.y + b.height / 2, b.width])({found}.getBoundingClientRect())")
        if not box[2]:
            raise BrowserError(f"{selector} is not shown")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def size(self, width: int, height: int, scale: float = 1, phone: bool = False) -> None:
        """Give the page a size in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )

    def colours(self, scheme: str) -> None:
        """Prefer `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def spoken(self) -> list[tuple[str, str]]:
        """Return (role, name) of all that a screen reader is told."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(0, until - time.monotonic()))[0]:
                raise BrowserError(f"chromium does not answer within {_SECONDS} s")
            read = os.read(self._read, 1 << 16)
            if not read:
                raise BrowserError("chromium has ended")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def _seen(self, event: dict[str, Any]) -> None:
        method, told = event.get("method"), event.get("params", {})
        if event.get("sessionId") != self._session:
            return
        if method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(each.get("value", each.get("description"))) for each in told["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(told["exceptionDetails"].get("exception", {}).get("description")))
        elif method == "Log.entryAdded":
            self.console.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])


@contextmanager
def browser() -> Iterator[Browser]:
    """Start chromium with a profile of its own, and end it; raise BrowserError where there is none."""
    path = program()
    if path is None:
        raise BrowserError(MISSING)
    # Its children end a moment after it, and may write there still.
    with tempfile.TemporaryDirectory(prefix="gpunode-browser-", ignore_cleanup_errors=True) as profile:
        to_it, ours = os.pipe()
        theirs, from_it = os.pipe()[::-1]
        process = subprocess.Popen(
            # Its sandbox refuses root; it opens nothing but our own pages.
            [
                path,
                "--headless=new",
                "--no-sandbox",
                "--remote-debugging-pipe",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: _as_three_and_four(to_it, theirs),
            close_fds=False,
        )
        os.close(to_it)
        os.close(theirs)
        try:
            yield Browser(from_it, ours)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(ours)
            os.close(from_it)


def _as_three_and_four(read: int, write: int) -> None:
    # Above both first: one of them may be 3 or 4 itself.
    high_read, high_write = os.dup(read), os.dup(write)
    while high_read < 5:
        high_read = os.dup(high_read)
    while high_write < 5:
        high_write = os.dup(high_write)
    os.dup2(high_read, 3)
    os.dup2(high_write, 4)
