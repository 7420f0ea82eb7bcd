"""Daemon threads that do I/O. `concurrent.futures` would join its threads at exit, and a put that hangs must not keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Pool:
    """At most `size` threads, started when there is work for them. A task must not raise."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._changed = threading.Condition()
        self._threads = 0
        self._unfinished = 0

    def submit(self, task: Callable[[], None]) -> None:
        with self._changed:
            self._unfinished += 1
            if self._unfinished > self._threads and self._threads < self._size:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._tasks.put(task)

    def wait(self, seconds: float) -> None:
        """Until nothing is left to do, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._unfinished == 0, seconds)

    def _work(self) -> None:
        while True:
            task = self._tasks.get()
            try:
                task()
            finally:
                with self._changed:
                    self._unfinished -= 1
                    self._changed.notify_all()
