"""Debian's Chromium without a window, steered over its debugging pipe (the DevTools protocol, messages ended by NUL).

It keeps what a test asks about: lines of the console, exceptions, violations of the page's policy, and every request.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WAIT_S = 12.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
    "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """One browser with one page. `profile`: an empty folder of its own."""

    def __init__(self, profile: Path) -> None:
        executable = shutil.which("chromium")
        if executable is None:
            raise RuntimeError("chromium is not installed: packaging/ensure-packages test")
        profile.mkdir(parents=True, exist_ok=True)
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        moved = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        words = [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with (profile / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", moved, "bash", str(orders), str(answers), *words],
                pass_fds=(orders, answers), stdout=log, stderr=log, start_new_session=True,
                env=os.environ | {"HOME": str(profile)},
            )  # fmt: skip
        os.close(orders)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._session = ""
        #: lines of the console from warnings on, exceptions and refused resources
        self.complaints: list[str] = []
        #: addresses of all requests
        self.requests: list[str] = []
        target = next(each for each in self.command("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._orders)
        os.close(self._answers)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give an order and return its result."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + WAIT_S
        while True:
            message = self._message(deadline)
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "chromium does not answer"
            read = os.read(self._answers, 1 << 16)
            assert read, "chromium has ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, told = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("warning", "error"):
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("warning", "error", "assert"):
            self.complaints.append(json.dumps(told["args"]))

    # -- the page --------------------------------------------------------------------------------------------------

    def open(self, address: str) -> None:
        self.command("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, timeout_s: float = WAIT_S) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.value(expression):
            assert time.monotonic() < deadline, (
                f"never: {expression}; the page says {self.value('document.body.innerText')}"
            )
            time.sleep(0.05)

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39}
        text = {"text": "\r"} if key == "Enter" else {}  # a form or a button obeys the character, not the key
        for kind in ("keyDown", "keyUp"):
            typed = text if kind == "keyDown" else {}
            self.command(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **typed
            )

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        self.command("Input.insertText", text=text)

    def size(self, width: int, height: int) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def colours(self, scheme: str) -> None:
        """`light` or `dark`."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        shot = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))
