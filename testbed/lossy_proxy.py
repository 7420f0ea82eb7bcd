"""An HTTP proxy on 127.0.0.1 that loses, cuts, refuses and delays what goes between an S3 client and its server, by rule.

Small and in-process, so that tests of lost answers need no other program. One request per connection, bodies are held in memory.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from urllib.parse import urlsplit


class Wire(Enum):
    """What happens to a request."""

    RESET_BEFORE = "RESET_BEFORE"
    """The connection is reset; the server never sees the request."""
    LOSE_ANSWER = "LOSE_ANSWER"
    """The server does it; of its answer only `keep` bytes come through, then the connection closes."""
    STATUS = "STATUS"
    """The proxy answers with `status` itself, and `code` in S3's XML; the server never sees the request."""
    DELAY = "DELAY"
    """`delay_s` before the request goes on."""
    HOLD = "HOLD"
    """The request gets no further for `delay_s`, then the connection closes: time to kill who sent it."""
    HOLD_ANSWER = "HOLD_ANSWER"
    """The server does it; its answer stays away for `delay_s`, then the connection closes."""
    UNCONDITIONAL = "UNCONDITIONAL"
    """The server never sees `If-None-Match`: as one that takes the condition and ignores it."""


@dataclass(frozen=True)
class WireFault:
    """Strikes requests whose line and headers match the regular expression, after `skip` of them, `times` times (None: always)."""

    wire: Wire
    pattern: str = ""
    skip: int = 0
    times: int | None = 1
    keep: int = 0
    status: int = 503
    code: str = "SlowDown"
    delay_s: float = 0.0


class LossyProxy:
    """Use as a context manager; `endpoint` is what the client gets. `requests` holds the first line of all it has seen,
    `struck` of those that a fault has hit, HOLD_ANSWER once the server has done them. `answered`: bytes that the server has answered to
    each first line, heads included."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: Sequence[str] = ()
        self.struck: Sequence[str] = ()
        self.answered: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._rules: list[tuple[WireFault, list[int]]] = []
        self._thread = threading.Thread(target=self._accept, name="lossy-proxy", daemon=True)

    def __enter__(self) -> LossyProxy:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def inject(self, fault: WireFault) -> None:
        with self._lock:
            self._rules.append((fault, [0]))

    def heal(self) -> None:
        with self._lock:
            self._rules.clear()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nobody listens: connections are refused, as of a server that is down."""
        port = self._listener.getsockname()[1]
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self._listener = socket.create_server(("127.0.0.1", port))
            self._thread = threading.Thread(target=self._accept, name="lossy-proxy", daemon=True)
            self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client:
                request = _read_request(client)
                if request is not None:
                    self._answer(client, *request)
        except OSError:
            pass  # the client or the server hung up: that is what a proxy sees

    def _answer(self, client: socket.socket, head: bytes, body: bytes) -> None:
        text = head.decode("latin-1")
        fault = self._strike(text)
        if fault is not None and fault.wire is Wire.RESET_BEFORE:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        if fault is not None and fault.wire is Wire.STATUS:
            client.sendall(_error_answer(fault.status, fault.code, with_body=not text.startswith("HEAD")))
            return
        if fault is not None and fault.wire is Wire.HOLD:
            time.sleep(fault.delay_s)
            return
        if fault is not None and fault.wire is Wire.DELAY:
            time.sleep(fault.delay_s)
        if fault is not None and fault.wire is Wire.UNCONDITIONAL:
            head = re.sub(rb"(?i)\r\nif-none-match:[^\r]*", b"", head)
        held = bytearray() if fault is not None and fault.wire is Wire.HOLD_ANSWER else None
        keep = fault.keep if fault is not None and fault.wire is Wire.LOSE_ANSWER else None
        with socket.create_connection(self._upstream) as server:
            server.sendall(head[:-2] + b"Connection: close\r\n\r\n" + body)
            while chunk := server.recv(1 << 16):
                with self._lock:
                    self.answered[text.split("\r\n", 1)[0]] += len(chunk)
                if held is not None:
                    held += chunk
                elif keep is None:
                    client.sendall(chunk)
                elif keep > 0:
                    client.sendall(chunk[:keep])
                    keep = max(0, keep - len(chunk))
        if fault is not None and held is not None:
            self._note(text)
            time.sleep(fault.delay_s)

    def _strike(self, text: str) -> WireFault | None:
        with self._lock:
            self.requests = (*self.requests, text.split("\r\n", 1)[0])
            struck = None
            for fault, seen in self._rules:
                if not re.search(fault.pattern, text):
                    continue
                seen[0] += 1
                late = seen[0] > fault.skip and (fault.times is None or seen[0] <= fault.skip + fault.times)
                if struck is None and late:
                    struck = fault
        if struck is not None and struck.wire is not Wire.HOLD_ANSWER:
            self._note(text)
        return struck

    def _note(self, text: str) -> None:
        with self._lock:
            self.struck = (*self.struck, text.split("\r\n", 1)[0])


def _read_request(client: socket.socket) -> tuple[bytes, bytes] | None:
    """Head (without Expect and Connection, ending in an empty line) and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = client.recv(1 << 16)
        if not chunk:
            return None
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    body = bytearray(rest)
    lines = head.split(b"\r\n")
    if any(line.lower().startswith(b"expect:") for line in lines):
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    length = next((int(line.split(b":", 1)[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        chunk = client.recv(1 << 16)
        if not chunk:
            return None
        body += chunk
    kept = [line for line in lines if not line.lower().startswith((b"expect:", b"connection:"))]
    return b"\r\n".join(kept) + b"\r\n\r\n", bytes(body)


def _error_answer(status: int, code: str, with_body: bool) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode() if with_body else b""
    lines = [f"HTTP/1.1 {status} injected", f"Content-Length: {len(body)}", "Content-Type: application/xml", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body
