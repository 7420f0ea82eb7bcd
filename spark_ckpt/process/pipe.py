"""JSON lines between the JVM and a Python process, over stdin and stdout (docs/pipes.md).

Both processes use it: `serve(Pipe.standard(), {"hello": on_hello, …})` reads until end of file.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, BinaryIO, Union

from spark_ckpt.errors import CheckpointError, ErrorKind, printable

COLLECT_EVERY = 100_000
"""Objects between two looks for garbage cycles: with Python's 700 they take a third of the time of a checkpoint of 10,000 partitions."""

MAX_LINE = 32 * 1024 * 1024
"""Bytes of a line without its end, as in the JVM (`Json.scala`). What can be longer goes by file, or in portions."""
_CHUNK = 1 << 16

Message = dict[str, Any]
Reply = Union[Mapping[str, Any], "Future[Mapping[str, Any]]", None]
"""What a handler returns: the answer's fields, a future of them (answered when it is done, in any order), or None (no fields)."""
Handler = Callable[[Message], Reply]


class Pipe:
    """One peer. `read` belongs to one thread; everything that writes is thread-safe and writes whole lines.

    A peer that no longer reads is not an error: its end of file follows at once, and lines for it are dropped. `max_line` is the same for
    both peers.
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO, max_line: int = MAX_LINE) -> None:
        self.readers: dict[bytes, Callable[[bytes], Message]] = {}
        """By how a line begins, what reads it faster than `json`; ValueError: it does not."""
        self._max_line = max_line
        self._reader = reader
        self._writer = writer
        self._lock = threading.Lock()
        self._broken = False

    @staticmethod
    def standard() -> Pipe:
        """This process's stdin and stdout, taken for itself: what anything else prints goes to stderr, what anything else reads is empty.

        Ctrl-C, YARN, systemd and Kubernetes signal the whole group, this process too; its end is the end of stdin alone, and bounded from
        there. What ends the JVM closes that pipe.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        reader = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
        writer = os.fdopen(os.dup(1), "wb", buffering=0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        sys.stdout.flush()
        os.dup2(2, 1)
        return Pipe(reader, writer)

    def read(self) -> Iterator[Message]:
        """Messages until end of file, which a cut last line is too. One that is no JSON object, or too long, is reported to the peer."""
        while line := self._reader.readline(self._max_line + 1):
            if not line.endswith(b"\n"):
                if len(line) <= self._max_line or not self._skip_line():
                    return
                self.log("ERROR", f"a line of more than {self._max_line} bytes came through the pipe and was skipped")
                continue
            if line.isspace():
                continue
            message = self._parse(line)
            if isinstance(message, dict):
                yield message
            else:
                self.log("ERROR", f"a line of {len(line)} bytes that came through the pipe is not a JSON object and was skipped")

    def _parse(self, line: bytes) -> Any:
        for start, read in self.readers.items():
            if line.startswith(start):
                with suppress(ValueError):
                    return read(line)
        try:
            return json.loads(str(line, "utf-8"))
        except (ValueError, RecursionError):
            return None

    def _skip_line(self) -> bool:
        """The rest of a line; False where it has no end."""
        while piece := self._reader.readline(_CHUNK):
            if piece.endswith(b"\n"):
                return True
        return False

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line. In the place of an answer that is too long goes an error, of any other message a line in the log.

        Raises ValueError or TypeError for what JSON cannot hold.
        """
        data = memoryview(json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n")
        if len(data) - 1 > self._max_line:
            self._refuse(message, len(data))
            return
        with self._lock:
            if self._broken:
                return
            try:
                while data:
                    data = data[self._writer.write(data) :]
                self._writer.flush()
            except (BrokenPipeError, ConnectionResetError):
                self._broken = True
            except ValueError:
                # The process ends: a thread of it still reports while another one has closed the pipe.
                if not self._writer.closed:
                    raise
                self._broken = True

    def _refuse(self, message: Mapping[str, Any], size: int) -> None:
        error = CheckpointError(f"a message of {size} bytes does not fit the pipe, which takes {self._max_line}; please report it")
        if "re" in message:
            self.fail(message["re"], error)
        else:
            self.log("ERROR", f"{message.get('type')}: {error}")

    def answer(self, request: Any, fields: Mapping[str, Any] | None) -> None:
        self.send({"re": request, "ok": True, **(fields or {})})

    def fail(self, request: Any, error: BaseException) -> None:
        """Answer with an error. One that is not a `CheckpointError` is a fault of this package: INTERNAL, its trace on stderr."""
        self.send({"re": request, "ok": False, "error": describe(error)})

    def log(self, level: str, message: str) -> None:
        """`level` is INFO, WARN or ERROR."""
        self.send({"type": "log", "level": level, "message": message})


def describe(error: BaseException) -> dict[str, Any]:
    """An error as the pipe carries it: `kind`, `message` and, where known, the `object` and `checkpoint` that could not be read.

    The message may name what somebody else has stored, and goes to terminals and logs.
    """
    if isinstance(error, CheckpointError):
        about: dict[str, Any] = {"object": error.object} if error.object is not None else {}
        if error.checkpoint is not None:
            about["checkpoint"] = error.checkpoint.to_json()
        return {"kind": error.kind.value, "message": printable(str(error)), **about}
    traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    return {"kind": ErrorKind.INTERNAL.value, "message": printable(f"internal error, please report it: {type(error).__name__}: {error}")}


def collect_less(objects: int) -> None:
    """So many are made and stay: no look for cycles before there are that many new ones."""
    if objects > gc.get_threshold()[0]:
        gc.set_threshold(objects)


def serve(pipe: Pipe, handlers: Mapping[str, Handler]) -> None:
    """Hand each message to the handler of its `type`, in this thread, until end of file.

    A handler that would block returns a future. An error of a one-way message becomes an ERROR log line.
    """
    gc.set_threshold(COLLECT_EVERY)
    for message in pipe.read():
        kind, request = message.get("type"), message.get("id")
        handler = handlers.get(kind) if isinstance(kind, str) else None
        try:
            if handler is None:
                raise CheckpointError(f"a message of type {kind!r} is unknown; JAR and Python package are of different versions")
            reply = handler(message)
        except Exception as error:
            _fail(pipe, kind, request, error)
            continue
        if isinstance(reply, Future):
            reply.add_done_callback(lambda done, k=kind, r=request: _settle(pipe, k, r, done))  # type: ignore[misc]
        elif request is not None:
            _answer(pipe, kind, request, reply)


def _settle(pipe: Pipe, kind: Any, request: Any, done: Future[Mapping[str, Any]]) -> None:
    if done.cancelled():
        _fail(pipe, kind, request, CheckpointError(f"{kind} was given up because the process is ending"))
    elif (error := done.exception()) is not None:
        _fail(pipe, kind, request, error)
    elif request is not None:
        _answer(pipe, kind, request, done.result())


def _answer(pipe: Pipe, kind: Any, request: Any, fields: Mapping[str, Any] | None) -> None:
    try:
        pipe.answer(request, fields)
    except (TypeError, ValueError) as error:
        _fail(pipe, kind, request, error)


def _fail(pipe: Pipe, kind: Any, request: Any, error: BaseException) -> None:
    if request is not None:
        pipe.fail(request, error)
    else:
        pipe.log("ERROR", f"{kind}: {describe(error)['message']}")
