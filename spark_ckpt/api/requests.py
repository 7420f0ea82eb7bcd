"""What people ask of a running stream: a request in its log, and the answer of the run that meets it."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_ckpt import paths
from spark_ckpt.conf.forms import parse_stream
from spark_ckpt.conf.options import Options, parse_options
from spark_ckpt.conf.table import PREFIX
from spark_ckpt.errors import (
    CheckpointError,
    ConfigError,
    ConflictError,
    DamagedError,
    OutcomeUnknownError,
    TimeoutExpiredError,
    printable,
)
from spark_ckpt.progress import Task, Tell, Unit, nobody
from spark_ckpt.protocol.entries import CHECKPOINT, STOP, Claim, Request, encode
from spark_ckpt.storage import PutResult, Storage, open_storage
from spark_ckpt.stored.answers import read_answer
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.places import Places
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Standing

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

APPENDS = 1000
"""How often the stream may be faster with its next entry, before that is given up."""
POLL_S = 0.25
LONGEST_S = 12 * 60 * 60
"""Nobody waits for longer: a run deletes its answer with the request's entry, when that is a day old (`log_trim.py`)."""
LOOKS = 8
"""Polls for the answer to one look whether somebody is there who will answer."""
STOPS_BACK = 32
"""How many log entries each look reads, back to the run's claim: of those before the request, one may be the stop that ends the run. Epochs
that are planned already come between them."""
ENDING_LOOKS = 5
"""So often an ended run is looked at before it is believed: it may still be storing other answers."""


@dataclass(frozen=True)
class Wish:
    """What a person asks for: an action of a `Request`. `target`: URL of the folder for a savepoint, `name` its name there; empty: the run
    decides."""

    action: str
    target: str = ""
    name: str = ""
    drain: bool = False

    @property
    def what(self) -> str:
        return "checkpoint" if self.action == CHECKPOINT else "savepoint"

    @property
    def copies(self) -> bool:
        return self.action != CHECKPOINT


def ask(
    storage: Storage,
    wish: Wish,
    patience_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    asked: Callable[[int, str], None] = lambda *_: None,
    tell: Tell = nobody,
) -> str:
    """Append the request and wait for its answer, `patience_s` seconds in all; returns the URL of the savepoint or checkpoint. `storage` is
    the stream's. `asked` is told the number of the request's log entry, and the URL of the savepoint's folder, or of the one above it where
    the run chooses the name. Raises `ConfigError` where that is more than `LONGEST_S`."""
    if patience_s > LONGEST_S:
        hours = LONGEST_S // 3600
        raise ConfigError(f"an answer is waited for {hours} hours at most, and not for {patience_s:g} s: ask for less, and once more later")
    until = clock() + patience_s
    reader = StreamReader(storage)
    claim, number = _append(storage, reader, wish)
    place = _place(reader, claim, wish)
    asked(number, place if wish.name or not wish.copies else place.rpartition("/")[0])
    looks, run = 0, _Run(storage, reader, claim, number)
    began, waiting = clock(), Task(tell, f"waiting for the {wish.what}", None, Unit.SECONDS)
    while True:
        answer = read_answer(storage, claim.run, number, wish.what)
        if answer is not None:
            return answer
        if clock() >= until:
            raise TimeoutExpiredError(
                f"nothing has answered the request in log entry {number} of {reader.url} within {patience_s:g} s; is its query running? "
                f"If not, start the query, then ask again. If run {claim.run} lives and is only slow, it may still make the "
                f"{wish.what}; a run that begins later does not answer{', nor does it stop for it' if wish.copies else ''}"
            )
        looks += 1
        if looks % LOOKS == 0 and (after := run.gone()) is not None:
            answer = read_answer(storage, claim.run, number, wish.what)
            if answer is not None:
                return answer
            raise ConflictError(
                f"{after} before it had met the request in log entry {number} of {reader.url}; start its query if it does not run, and "
                "ask again"
            )
        sleep(POLL_S)
        waiting.reach(int(clock() - began))


def _append(storage: Storage, reader: StreamReader, wish: Wish) -> tuple[Claim, int]:
    """Put-if-absent at the tail, under the last claim. A number that somebody else took: look again."""
    nonce, by, known = uuid.uuid4().hex, printable(f"{_user()}@{socket.gethostname()}"), 0
    log = StreamLog(storage)
    for _ in range(APPENDS):
        standing = _standing(reader, known)
        _place(reader, standing.claim, wish)
        number = standing.tail + 1
        entry = encode(Request(standing.claim.claim, wish.action, wish.target, by, wish.name, wish.drain, nonce, standing.floor))
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


def _place(reader: StreamReader, claim: Claim, wish: Wish) -> str:
    """By the rule that the run keeps to, for what its claim says of its configuration. Of a checkpoint: the stream's own folder."""
    if not wish.copies:
        return reader.url
    return Places(reader.url, claim.savepoint_dir).savepoint(wish.target, wish.name or "savepoint")


def _standing(reader: StreamReader, known: int) -> Standing:
    standing = reader.standing(known)
    if standing is None:
        reader.check()
        raise DamagedError(f"the stream at {reader.url} has no log; nobody can be asked")
    if standing.ended:
        raise ConflictError(f"the stream at {reader.url} was deleted on purpose, and no query has begun it anew; start its query first")
    return standing


class _Run:
    """Who is to answer the request in log entry `number`."""

    def __init__(self, storage: Storage, reader: StreamReader, claim: Claim, number: int) -> None:
        self._storage, self._reader, self._claim, self._number = storage, reader, claim, number
        self._before = number - 1
        self._stops: list[int] = []
        """That stand between `_before`, which is read next, and the request."""
        self._ended = 0

    def gone(self) -> str | None:
        """Who will not answer any more, and why."""
        standing, run = self._reader.standing(self._number), f"run {self._claim.run}"
        if standing is None or standing.claim.claim != self._claim.claim:
            return f"{run} ended, and another one took over,"
        if standing.ended:
            return f"{run} was stopped and its stream deleted"
        self._stops += self._earlier_stops()
        stopped = next((number for number in self._stops if self._is_met(number)), None)
        self._ended += stopped is not None
        return f"{run} was stopped, as log entry {stopped} had asked," if self._ended > ENDING_LOOKS else None

    def _earlier_stops(self) -> Iterator[int]:
        log = StreamLog(self._storage)
        last, self._before = self._before, max(self._claim.claim, self._before - STOPS_BACK)
        for number in range(last, self._before, -1):
            entry = log.readable(number)
            if isinstance(entry, Request) and entry.action == STOP and entry.claim == self._claim.claim:
                yield number

    def _is_met(self, number: int) -> bool:
        """Nobody is told that a query has stopped before it is told to (`SavepointQueue.finished`)."""
        with suppress(CheckpointError):
            return read_answer(self._storage, self._claim.run, number) is not None
        return False


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@contextmanager
def stream_of(query: StreamingQuery | str) -> Iterator[Storage]:
    """The storage of its stream. Raises `ConfigError`, and `ConflictError` where the query does not run."""
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
        raise ConflictError("the query is not running, and only a running one answers; start it first")
    return paths.stream_url(options.storage, wrapped.streamingQuery().resolvedCheckpointRoot())
