"""Lines of a server, over one connection after the other (Flink: `SocketTextStreamFunction`).

A thread connects, reads, and connects again when the connection is lost. Lines get numbers in the order in which they come, and are kept
until they are forgotten. If nobody takes them, nothing more is read: the server then waits, as TCP has it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from dataclasses import dataclass
from itertools import islice

NAME = "retrying-socket"
MAX_BYTES = 16 * 1024 * 1024
"""Of the lines that are kept, and of one line."""
LINE_BYTES = 64
"""What a line costs besides its text, at least: a million empty ones are not nothing."""
_AT_ONCE = 64 * 1024
_CONNECT_S = 30.0
_SILENT_S, _PROBE_S, _PROBES = 60, 10, 3
"""A machine that dies says nothing. After so long without a byte it is asked (TCP keep-alive), and then the connection counts as lost."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Server:
    """Where the lines come from, and how often it is tried again: `retries` in a row without a line, -1 for ever, each after `delay_s`."""

    host: str
    port: int
    retries: int = -1
    delay_s: float = 0.5

    def __str__(self) -> str:
        return f"{NAME} {self.host}:{self.port}"


@dataclass(frozen=True)
class Line:
    """Without its end; `received_s`: seconds since 1970."""

    text: str
    received_s: float


class SocketLines:
    """The lines of a server, the first of which gets the number `first`. Connects when it is made; `close` ends the connection."""

    def __init__(self, server: Server, first: int, max_bytes: int = MAX_BYTES) -> None:
        self._server, self._max_bytes = server, max_bytes
        self._first, self._lines, self._bytes = first, list[tuple[Line, int]](), 0
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._over: Exception | None = None
        self._connection: socket.socket | None = None
        self._failed = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._thread = threading.Thread(target=self._run, name=str(server), daemon=True)
        self._thread.start()

    def end(self, taken: int) -> int:
        """The number that the next line gets. Raises what ended the reading, if it has ended and all lines are taken: there are `taken`."""
        with self._changed:
            end = self._first + len(self._lines)
            if end == taken and self._over is not None:
                raise self._over
            return end

    def between(self, start: int, end: int) -> list[Line]:
        """Those of the lines `start` … `end - 1` that are here."""
        with self._changed:
            return [line for line, _ in islice(self._lines, max(0, start - self._first), max(0, end - self._first))]

    def forget(self, before: int) -> None:
        """Nobody will ask for the lines before this one any more."""
        with self._changed:
            gone = min(max(0, before - self._first), len(self._lines))
            self._bytes -= sum(size for _, size in islice(self._lines, gone))
            del self._lines[:gone]
            self._first += gone
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(1)  # it may be connecting, and ends with the process

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                reason = self._connect_and_read()
                if self._closed.is_set():
                    return
                self._drop_unfinished(reason)
                self._count(reason)
                with self._changed:
                    self._changed.wait_for(self._closed.is_set, self._server.delay_s)
        except Exception as error:
            with self._changed:
                self._over = error

    def _connect_and_read(self) -> str:
        """Returns why there is no connection, or none any more."""
        try:
            with socket.create_connection((self._server.host, self._server.port), timeout=_CONNECT_S) as connection:
                _keep_alive(connection)
                with self._changed:
                    if self._closed.is_set():
                        return ""
                    self._connection = connection
                while data := connection.recv(_AT_ONCE):
                    self._take(data)
                return "the server has closed the connection"
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        finally:
            with self._changed:
                self._connection = None

    def _take(self, data: bytes) -> None:
        *ends, rest = data.split(b"\n")
        if ends:
            ends[0] = b"".join([*self._pending, ends[0]])
            self._pending.clear()
            self._pending_bytes = 0
            if self._failed:
                _log.warning("%s: lines come again", self._server)
            self._failed = 0
            self._keep(ends)
        if rest:
            self._pending.append(rest)
            self._pending_bytes += len(rest)
        if self._pending_bytes > self._max_bytes:
            raise ValueError(f"{self._server}: no line has ended within {self._max_bytes} bytes; does the server send lines of text?")

    def _keep(self, raw: list[bytes]) -> None:
        now = time.time()
        for one in raw:
            size = len(one) + LINE_BYTES
            line = Line(one.removesuffix(b"\r").decode("utf-8", "replace"), now)
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or self._bytes < self._max_bytes)
                self._lines.append((line, size))
                self._bytes += size

    def _drop_unfinished(self, reason: str) -> None:
        if self._pending_bytes:
            _log.warning("%s: %d bytes of a line that has no end are dropped: %s", self._server, self._pending_bytes, reason)
        self._pending.clear()
        self._pending_bytes = 0

    def _count(self, reason: str) -> None:
        self._failed += 1
        if 0 <= self._server.retries < self._failed:
            raise ConnectionError(
                f"{self._server}: no line in {self._failed} connections or attempts to connect, the last of which ended with: {reason}. "
                f"Start the server, and then the query; or allow more than maxNumRetries={self._server.retries}, -1 for no limit"
            )
        if self._failed & (self._failed - 1) == 0:  # each time would fill the log
            _log.warning("%s: %s; attempt %d to connect again follows in %g s", self._server, reason, self._failed, self._server.delay_s)


def _keep_alive(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _SILENT_S), ("TCP_KEEPINTVL", _PROBE_S), ("TCP_KEEPCNT", _PROBES)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
