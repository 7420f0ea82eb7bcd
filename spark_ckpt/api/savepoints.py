"""Recovery a running stream for a savepoint: a request in its log, and the answer of the run that meets it."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_ckpt import paths
from spark_ckpt.conf import PREFIX, Options, parse_options, parse_stream
from spark_ckpt.errors import (
    ConfigError,
    ConflictError,
    DamagedError,
    OutcomeUnknownError,
    TimeoutExpiredError,
)
from spark_ckpt.protocol.entries import SAVEPOINT, STOP, Claim, Request, encode
from spark_ckpt.storage import PutResult, Storage, open_storage
from spark_ckpt.stored.answers import read_answer
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.places import Places
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Standing
from spark_ckpt.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

APPENDS = 1000
"""How often the stream may be faster with its next entry, before that is given up."""
POLL_S = 0.25
LOOKS = 8
"""Polls for the answer to one look at the log, where a newer claim says that nobody will answer."""


@dataclass(frozen=True)
class SavepointRequest:
    """What a person asks for. `target`: URL of the folder for the savepoint, `name` its name there; empty: the run decides."""

    target: str = ""
    name: str = ""
    stop: bool = False
    drain: bool = False

    def __post_init__(self) -> None:
        if self.drain and not self.stop:
            raise ConfigError(
                "drain without stop is not possible: it ends all windows and event-time timers, and the query could not go on from that; "
                "ask for both, or for neither"
            )
        if self.name:
            paths.savepoint_url("", "", self.name)


def savepoint(
    query: StreamingQuery | str,
    target: str | None = None,
    name: str | None = None,
    stop: bool = False,
    drain: bool = False,
    timeout: str | int = "10min",
) -> str:
    """Make a savepoint of a running query and return the URL of its folder: complete in itself, never deleted by the system.

    `query` is the query, or the URL of its stream for one that another process runs. `target` is the folder in which it is made, one
    below the query's `spark.ckpt.savepointDir` or below `savepoints/` in the stream's own (default: the first of these that there is),
    `name` its name there (default: a new one). With `stop` the query ends after it; with `drain` too, the watermark goes to its end
    before, so that windows and event-time timers fire. `timeout` is a duration as Spark writes it. Raises `ConfigError`,
    `TimeoutExpiredError` where nothing takes the request up, and `CheckpointError` where the run could not make it (a query that was to
    stop goes on then).
    """
    try:
        request = SavepointRequest(parse_stream(target) if target is not None else "", name or "", stop, drain)
        patience_s = parse_duration(str(timeout)) / 1000
    except ValueError as e:
        raise ConfigError(f"the savepoint cannot be made, write it as {e}") from None
    until = time.monotonic() + patience_s
    with _stream_of(query) as storage:
        url = request_savepoint(storage, request, patience_s)
    if stop and not isinstance(query, str) and not query.awaitTermination(max(1, int(until - time.monotonic()))):
        raise TimeoutExpiredError(f"the savepoint is made, {url}, but the query has not ended yet; stop() ends it")
    return url


def request_savepoint(
    storage: Storage,
    request: SavepointRequest,
    patience_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    asked: Callable[[int, str], None] = lambda *_: None,
) -> str:
    """Append the request and wait for its answer, `patience_s` seconds in all; returns the savepoint's URL. `storage` is the stream's.
    `asked` is told the number of the request's log entry, and the URL of the savepoint's folder, or of the one above it where the run
    chooses the name."""
    until = clock() + patience_s
    reader = StreamReader(storage)
    claim, number = _append(storage, reader, request)
    place = _place(reader, claim, request)
    asked(number, place if request.name else place.rpartition("/")[0])
    looks = 0
    while True:
        answer = read_answer(storage, claim.run, number)
        if answer is not None:
            return answer
        if clock() >= until:
            raise TimeoutExpiredError(
                f"nothing has answered the request in log entry {number} of {reader.url} within {patience_s:g} s; is its query running? "
                f"If not, start the query, then ask again. If run {claim.run} lives and is only slow, it may still make the savepoint; a "
                "run that begins later does not, nor does it stop for it"
            )
        looks += 1
        if looks % LOOKS == 0 and (after := _gone(reader, claim, number)) is not None:
            answer = read_answer(storage, claim.run, number)
            if answer is not None:
                return answer
            raise ConflictError(f"{after} before it had met the request in log entry {number} of {reader.url}; ask again")
        sleep(POLL_S)


def _append(storage: Storage, reader: StreamReader, request: SavepointRequest) -> tuple[Claim, int]:
    """Put-if-absent at the tail, under the last claim. A number that somebody else took: look again."""
    nonce, by, known = uuid.uuid4().hex, f"{_user()}@{socket.gethostname()}", 0
    log = StreamLog(storage)
    for _ in range(APPENDS):
        standing = _standing(reader, known)
        _place(reader, standing.claim, request)
        number = standing.tail + 1
        action = STOP if request.stop else SAVEPOINT
        entry = encode(Request(standing.claim.claim, action, request.target, by, request.name, request.drain, nonce, standing.floor))
        try:
            if log.put(number, entry)[0] is PutResult.STORED:
                return standing.claim, number
        except OutcomeUnknownError:
            pass  # whose it is, is read
        there = log.read(number)
        if there == entry:
            return standing.claim, number
        known = standing.tail if there is None else number
    raise ConflictError(f"the log of {reader.url} grew {APPENDS} times while a request was to be appended; ask again")


def _place(reader: StreamReader, claim: Claim, request: SavepointRequest) -> str:
    """By the rule that the run keeps to, for what its claim says of its configuration."""
    return Places(reader.url, claim.savepoint_dir).savepoint(request.target, request.name or "savepoint")


def _standing(reader: StreamReader, known: int) -> Standing:
    standing = reader.standing(known)
    if standing is None:
        reader.check()
        raise DamagedError(f"the stream at {reader.url} has no log; nobody can be asked")
    if standing.ended:
        raise ConflictError(f"the stream at {reader.url} was deleted on purpose, and no query has begun it anew; start its query first")
    return standing


def _gone(reader: StreamReader, claim: Claim, number: int) -> str | None:
    """Who will not answer any more, and why."""
    standing = reader.standing(number)
    if standing is None or standing.claim.claim != claim.claim:
        return f"run {claim.run} ended, and another one took over,"
    return f"run {claim.run} was stopped and its stream deleted" if standing.ended else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@contextmanager
def _stream_of(query: StreamingQuery | str) -> Iterator[Storage]:
    options = _options()
    with open_storage(_url_of(query, options), options.s3) as storage:
        yield storage


def _options() -> Options:
    """Those of the application, if one runs here."""
    module = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    context: Any = getattr(getattr(module, "SparkContext", None), "_active_spark_context", None)
    conf: Mapping[str, str] = dict(context.getConf().getAll()) if context is not None else {}
    return parse_options({key: value for key, value in conf.items() if key.startswith(PREFIX)})


def _url_of(query: StreamingQuery | str, options: Options) -> str:
    if isinstance(query, str):
        try:
            return parse_stream(query)
        except ValueError as e:
            raise ConfigError(f"the stream's URL cannot be used; write {e}") from None
    wrapped: Any = getattr(query, "_jsq", None)
    if wrapped is None:
        raise ConfigError("the checkpointLocation of this query is not known here (Spark Connect); give the URL of its stream instead")
    if not query.isActive:
        raise ConflictError("the query is not running, and only a running one can make a savepoint; start it first")
    return paths.stream_url(options.storage, wrapped.streamingQuery().resolvedCheckpointRoot())
