"""A headless Chromium, driven by its own protocol over a pair of pipes: nothing to install beside the browser, and no port is opened."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.drivers.spark.chromium import Chromium

ANSWER_S = 60
CLICKS = 3
ARGUMENTS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # which cannot be had as root
    "--no-first-run",
    "--disable-gpu",
    "--hide-scrollbars",
    "--window-size=1300,1000",
)
CONNECT = 'exec 3<&$1 4>&$2; shift 2; exec "$@"'
"""The browser reads its file 3 and writes its file 4."""


class BrowserError(Exception):
    """What the browser says of a command, in its own words."""


class Pipes:
    """Commands, answers and events, one JSON document each, ended by a zero byte."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._numbers = itertools.count(1)
        self._left = b""
        self.session: str | None = None
        self.events: list[Mapping[str, Any]] = []

    def ask(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self._to, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            message = self._next(deadline, method)
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def _next(self, deadline: float, method: str) -> Mapping[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser has not answered {method} within {ANSWER_S} s"
            read = os.read(self._from, 1 << 20)
            assert read, "the browser has ended"
            self._left += read
        line, self._left = self._left.split(b"\0", 1)
        message: Mapping[str, Any] = json.loads(line)
        return message


class Browser:
    """One window. Elements are found by CSS selectors."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        target = pipes.ask("Target.createTarget", url="about:blank")["targetId"]
        pipes.session = pipes.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            pipes.ask(f"{domain}.enable")

    def open(self, url: str) -> None:
        before = self._mark()
        self._pipes.ask("Page.navigate", url=url)
        assert self._leaves(before, ANSWER_S), f"{url} leads nowhere"

    def title(self) -> str:
        return str(self.run("return document.title"))

    def texts(self, selector: str) -> list[str]:
        """What a person reads in each of the elements."""
        found = self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText.trim())", selector)
        return [str(text) for text in found]

    def text(self, selector: str) -> str:
        found = self.texts(selector)
        assert len(found) == 1, f"{len(found)} elements are {selector}"
        return found[0]

    def table(self, selector: str) -> list[list[str]]:
        """The cells of a table's body."""
        script = "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(r => [...r.children].map(c => c.innerText.trim()))"
        return [[str(cell) for cell in row] for row in self.run(script, selector)]

    def click(self, selector: str, text: str) -> None:
        """The first of the elements that reads so, with the mouse; waits for the page it leads to."""
        script = """
            const read = e => e.innerText.replace(/[\\u25be\\u25b4]/g, '').trim();  // a column that is sorted by has an arrow
            const element = [...document.querySelectorAll(arguments[0])].find(e => read(e) === arguments[1]);
            if (!element) return null;
            element.scrollIntoView({block: 'center', behavior: 'instant'});
            const box = element.getClientRects()[0];
            const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
            const hit = document.elementFromPoint(x, y);
            return {x, y, free: element.contains(hit) || hit.contains(element)};
        """
        # What lies under the mouse is known from the frame that was drawn last: where a page has just changed its size, or was scrolled,
        # that is another one than the script sees.
        drawn = "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        # On a machine with much else to do two frames may not be enough, and the click meets nothing: as a person does, it clicks again.
        for _ in range(CLICKS):
            self.run(script, selector, text)
            self.run(drawn)
            place = self.run(script, selector, text)
            assert place is not None, f"none of {self.texts(selector)} reads {text}"
            assert place["free"], f"something lies over {text}"
            before = self._mark()
            for kind in ("mousePressed", "mouseReleased"):
                self._pipes.ask("Input.dispatchMouseEvent", type=kind, x=place["x"], y=place["y"], button="left", clickCount=1)
            if self._leaves(before, ANSWER_S / CLICKS):
                return
        raise AssertionError(f"{text} leads nowhere")

    def run(self, script: str, *args: Any) -> Any:
        expression = f"(function() {{ {script} }}).apply(null, {json.dumps(args)})"
        answer = self._pipes.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def errors(self) -> list[str]:
        """What the pages' scripts and loads complained about since the last call."""
        events, self._pipes.events = self._pipes.events, []
        entries = [e["params"]["entry"] for e in events if e["method"] == "Log.entryAdded"]
        said = [e["params"] for e in events if e["method"] == "Runtime.consoleAPICalled"]
        thrown = [e["params"]["exceptionDetails"] for e in events if e["method"] == "Runtime.exceptionThrown"]
        found = [e["text"] for e in entries if e["level"] == "error"] + [json.dumps(s["args"]) for s in said if s["type"] == "error"]
        return found + [t.get("exception", {}).get("description", t["text"]) for t in thrown]

    def screenshot(self, file: Path, width: int = 1300, height: int = 1250) -> None:
        """The page as wide as given, from its top down to its end or `height`."""
        self.run("document.querySelectorAll('.scroll-btn-container').forEach(e => e.remove())")
        self._pipes.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        bottoms = self.run("return [...document.querySelectorAll('body *')].map(e => e.getBoundingClientRect().bottom + window.scrollY)")
        clip = {"x": 0, "y": 0, "width": width, "height": min(max(bottoms) + 16, height), "scale": 1}
        picture = self._pipes.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        self._pipes.ask("Emulation.clearDeviceMetricsOverride")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(picture["data"]))

    def _mark(self) -> str:
        return str(self.run("return document.documentElement.dataset.before = Math.random().toString()"))

    def _leaves(self, before: str, seconds: float) -> bool:
        """Waits until another page than the marked one is there."""
        deadline = time.monotonic() + seconds
        state = "const root = document.documentElement; return (root && root.dataset.before) || (root ? document.readyState : 'loading')"
        while True:
            try:
                if self.run(state) not in (before, "loading", "interactive"):
                    return True
            except BrowserError:
                pass  # the page is being replaced
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)


@contextmanager
def browser(chromium: Chromium, folder: Path) -> Iterator[Browser]:
    """`folder` takes the profile and what the browser says."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    given = [fcntl.fcntl(f, fcntl.F_DUPFD, 10) for f in (theirs_in, theirs_out)]  # not 3 or 4, which the shell is about to set
    command = [chromium.program, *ARGUMENTS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        wired = ["bash", "-c", CONNECT, "bash", *map(str, given), *command]
        env = {**os.environ, **chromium.env}
        process = subprocess.Popen(wired, pass_fds=given, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    for theirs in (theirs_in, theirs_out, *given):
        os.close(theirs)
    pipes = Pipes(ours_out, ours_in)
    try:
        yield Browser(pipes)
        pipes.session = None
        pipes.ask("Browser.close")
    finally:
        os.close(ours_out)
        os.close(ours_in)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
