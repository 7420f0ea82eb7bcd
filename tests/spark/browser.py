"""A headless Chromium, driven through chromedriver's own protocol (W3C WebDriver): nothing to install beside the two programs."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromedriver")
MISSING = "the browser tests need a headless Chromium: apt-get install chromium chromium-driver"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def installed() -> bool:
    return all(shutil.which(program) for program in PROGRAMS)


class Browser:
    """One window. Elements are found by CSS selectors."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, url: str) -> None:
        self._ask("POST", "/url", {"url": url})

    def title(self) -> str:
        return str(self._ask("GET", "/title"))

    def texts(self, selector: str) -> list[str]:
        """What a person reads in each of the elements."""
        return [str(self._ask("GET", f"/element/{e}/text")) for e in self._find(selector)]

    def text(self, selector: str) -> str:
        found = self.texts(selector)
        assert len(found) == 1, f"{len(found)} elements are {selector}"
        return found[0]

    def table(self, selector: str) -> list[list[str]]:
        """The cells of a table's body."""
        script = "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(r => [...r.children].map(c => c.innerText.trim()))"
        return [[str(cell) for cell in row] for row in self.run(script, selector)]

    def click(self, selector: str, text: str) -> None:
        """The first of the elements that reads so; waits for the page it leads to."""
        before = self.run("return document.documentElement.dataset.before = Math.random().toString()")
        for element in self._find(selector):
            reads = str(self._ask("GET", f"/element/{element}/text"))
            if reads.rstrip("▾▴").strip() == text:  # a column that is sorted by has an arrow
                # Spark's style scrolls smoothly, and a click does not wait for that.
                self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", {_ELEMENT: element})
                self._ask("POST", f"/element/{element}/click", {})
                break
        else:
            raise AssertionError(f"none of {self.texts(selector)} reads {text}")
        deadline = time.monotonic() + 20
        while self.run("return document.documentElement.dataset.before || document.readyState") in (before, "loading", "interactive"):
            assert time.monotonic() < deadline, f"{text} leads nowhere"
            time.sleep(0.05)

    def run(self, script: str, *args: Any) -> Any:
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def errors(self) -> list[str]:
        """What the page's scripts complained about since the last call."""
        log = self._ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]

    def screenshot(self, file: Path, width: int = 1300, height: int = 1250) -> None:
        """The page as wide as given, from its top down to its end or `height`."""
        self.run("document.querySelectorAll('.scroll-btn-container').forEach(e => e.remove())")
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._tools("Emulation.setDeviceMetricsOverride", metrics)
        bottoms = self.run("return [...document.querySelectorAll('body *')].map(e => e.getBoundingClientRect().bottom + window.scrollY)")
        clip = {"x": 0, "y": 0, "width": width, "height": min(max(bottoms) + 16, height), "scale": 1}
        picture = self._tools("Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True})
        self._tools("Emulation.clearDeviceMetricsOverride", {})
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(picture["data"]))

    def close(self) -> None:
        _send("DELETE", self._session)

    def _tools(self, command: str, params: dict[str, Any]) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def _find(self, selector: str) -> list[str]:
        found = self._ask("POST", "/elements", {"using": "css selector", "value": selector})
        return [element[_ELEMENT] for element in found]

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _send(method, self._session + path, body)


def _send(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"chromedriver: {json.loads(error.read())['value']['message'].splitlines()[0]}") from None


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """`folder` holds the profile and chromedriver's log."""
    log = folder / "chromedriver.log"
    with log.open("wb") as out:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=out, stderr=subprocess.STDOUT)
    try:
        base = f"http://127.0.0.1:{_port(driver, log)}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1300,1000"]
        arguments.append(f"--user-data-dir={folder / 'profile'}")
        chosen = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "SEVERE"}}
        session = _send("POST", base + "/session", {"capabilities": {"alwaysMatch": {"browserName": "chrome", **chosen}}})
        window = Browser(f"{base}/session/{session['sessionId']}")
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait(20)


def _port(driver: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and driver.poll() is None:
        for line in log.read_text().splitlines():
            if "started successfully on port" in line:
                return int(line.rstrip(".").rsplit(" ", 1)[1])
        time.sleep(0.05)
    raise AssertionError(f"chromedriver does not start:\n{log.read_text()}")
