"""A page in Chromium that a test looks at and uses as a person does: by the browser's own protocol (CDP)."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

from tests.tools.browser import OPTIONS, chromium

PATIENCE = 120.0  # seconds for what takes one on an idle machine


class Page:
    """One page. `requests` are the addresses that it asked for, `trouble` what its console complained of."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=PATIENCE, suppress_origin=True)
        self._number = 0
        self.requests: list[str] = []
        self.trouble: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            told = json.loads(self._socket.recv())
            if told.get("id") == self._number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result
            self._hear(told.get("method"), told.get("params", {}))

    def _hear(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.trouble.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["source"] != "network":
            self.trouble.append(params["entry"]["text"])

    def open(self, address: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """Return what a script of the page returns."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the text of an element as somebody sees it; of none, or of one that is hidden: nothing."""
        script = f"(one => one?.checkVisibility() ? one.innerText : '')(document.querySelector({json.dumps(selector)}))"
        return str(self.run(script))

    def shows(self, selector: str, pattern: str) -> str:
        """Return the text of an element once the pattern is found in it."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, text := self.text(selector)):
            assert time.monotonic() < deadline, f"{selector} shows {text!r}, not {pattern!r}; {self.trouble}"
            time.sleep(0.05)
        return text

    def click(self, selector: str) -> None:
        """Click an element as a mouse does, once it is there."""
        script = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{script}.scrollIntoView({{block: 'center'}})")
        box = self.run(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({script}.getBoundingClientRect())"
        )
        where = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **where)

    def press(self, key: str, text: str | None = None) -> None:
        """Press a key; with `text` it also types that."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}.get(key, ord(key[0].upper()))
        typed = {"Enter": "\r"}.get(key, text)
        how = {"key": key, "windowsVirtualKeyCode": code, "code": key}
        self.call("Input.dispatchKeyEvent", type="keyDown", **how, **({"text": typed} if typed else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **how)

    def write(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Give the page another size, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def dark(self, yes: bool = True) -> None:
        """Tell the page that its reader likes it dark."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if yes else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """Write what the page looks like as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Callable[[], Page]]:
    """Run Chromium with a profile in an empty folder; the function that it yields opens a new page."""
    argv = [chromium(), *OPTIONS, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            yield lambda: Page(_new_page(profile))
        finally:
            os.killpg(process.pid, 9)
            process.wait()
    shutil.rmtree(profile, ignore_errors=True)


def _new_page(profile: Path) -> str:
    """Return the address of a new page, by which its protocol is spoken."""
    import http.client

    deadline = time.monotonic() + PATIENCE
    while not (lines := _lines(profile / "DevToolsActivePort")):
        assert time.monotonic() < deadline, "Chromium does not listen"
        time.sleep(0.05)
    connection = http.client.HTTPConnection("127.0.0.1", int(lines[0]), timeout=PATIENCE)
    connection.request("PUT", "/json/new?about:blank")
    found = json.loads(connection.getresponse().read())
    connection.close()
    return str(found["webSocketDebuggerUrl"])


def _lines(path: Path) -> list[str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return lines if len(lines) > 1 else []
