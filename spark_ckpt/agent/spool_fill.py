"""How full the spool is, told to the executor: it slows its tasks down by that (docs/pipes.md, `spool`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

STEPS = 16


class SpoolFill:
    """Thread-safe. `send` gets a line when the fill passes a sixteenth of `max_bytes` or returns to 0; `relieve` is called with every
    step up in the upper half."""

    def __init__(self, max_bytes: int, send: Callable[[dict[str, Any]], None], relieve: Callable[[], None]) -> None:
        self._max_bytes = max_bytes
        self._send = send
        self._relieve = relieve
        self._lock = threading.Lock()
        self._bytes = 0
        self._sent = 0

    def changed(self, fill: int) -> None:
        """The fill has changed, to so many bytes."""
        with self._lock:
            self._bytes = fill
            step, sent = self._step(fill), self._step(self._sent)
            if step != sent or (fill == 0 and self._sent != 0):
                self._send_it()
                if step > sent and step > STEPS // 2:
                    self._relieve()

    def flush(self) -> None:
        """Send what has not been sent yet, though it is less than a step."""
        with self._lock:
            if self._bytes != self._sent:
                self._send_it()

    def _step(self, fill: int) -> int:
        return fill * STEPS // self._max_bytes

    def _send_it(self) -> None:
        self._sent = self._bytes
        self._send({"type": "spool", "bytes": self._bytes})
