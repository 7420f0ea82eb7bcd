"""The runtime around one stream's machine: a thread that feeds it events and has its instructions done."""

from __future__ import annotations

import heapq
import itertools
import json
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from spark_ckpt import paths
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.coordinator.intake import Intake
from spark_ckpt.coordinator.pool import Pool
from spark_ckpt.errors import CheckpointError, ErrorKind, printable
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import offsets_file, sources_of
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.instructions import Gate, Instruction, RequestName
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.stream import Stream

FIRST_DELAY_S = 0.1
DOUBLINGS = 32
"""Attempts have no bound, a floating-point number has."""
LONGEST_DELAY_S = 5.0
"""Between attempts; each waits twice as long as the one before."""
RECENT_MS = 5 * 60_000
"""Who has appended to the log so shortly before a claim may still run."""

Fields = Mapping[str, Any]
Say = Callable[[Mapping[str, Any]], None]


class RefusedError(CheckpointError):
    """What the machine refused, with the kind the JVM is told."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class StreamWorker:
    """All events of a stream pass through one queue, so the machine is never entered twice at a time.

    Storage is asked in `foreground` threads; deletions wait for a thread of their own in `background`, so that no epoch
    waits behind them, and old entries of the log for one in `trimming`, so that no deletion does.
    It ends by itself once `stop` is answered and nothing is in hand any more; `ended` hears of it.
    """

    def __init__(
        self,
        root: str,
        actions: StorageActions,
        settings: Settings,
        foreground: Pool,
        background: Pool,
        trimming: Pool,
        say: Say,
        restored: Callable[[str | None], None],
        ended: Callable[[StreamWorker], None],
    ) -> None:
        self.root = root
        self.actions = actions
        self.life = ""
        """Spark's run id of the start of a query that the stream belongs to; of the pipe's thread."""
        self.intake = Intake()
        """Of the pipe's thread."""
        self._restored = restored
        self._ended = ended
        self._foreground = foreground
        self._background = background
        self._trimming = trimming
        self._say = say
        self._stream = Stream(settings)
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._turns: SimpleQueue[Future[None]] = SimpleQueue()
        self._requests: dict[str, Future[Fields]] = {}
        self._due: list[tuple[float, int, int | None, Callable[[], None]]] = []
        self._order = itertools.count()
        self._cancelled: set[int] = set()
        self._unasked: dict[int, do.Question] = {}
        self._ending = False
        self._in_hand = 0
        self._stopped = False
        self._gone = threading.Event()
        self._process = f"coordinator {uuid.uuid4().hex}"
        self._thread = threading.Thread(target=self._work, name=f"stream {root}", daemon=True)
        self._thread.start()

    # --- called by the pipe's thread

    def request(self, name: str, event: ev.Event) -> Future[Fields]:
        """A request of the JVM; the future has the answer's fields."""
        future: Future[Fields] = Future()
        self._queue.put(lambda: self._take(name, event, future))
        return future

    def tell(self, event: ev.Event) -> None:
        self._queue.put(lambda: self._handle(event))

    def turn(self) -> Future[None]:
        """Done when the stream's thread has finished what it does now, however much waits behind that."""
        turn: Future[None] = Future()
        self._turns.put(turn)
        self._queue.put(lambda: None)
        return turn

    def end(self) -> None:
        """Nothing more will be asked: timers and new attempts stop."""
        self._queue.put(self._end)

    def quiet(self, seconds: float) -> None:
        """Wait until what was queued has been handled, at most so long."""
        done = threading.Event()
        self._queue.put(done.set)
        if not self._gone.is_set():
            done.wait(seconds)

    # --- the thread

    def _work(self) -> None:
        self._serve()
        self.actions.close()
        self._ended(self)
        self._gone.set()
        with suppress(Empty):  # who has not seen that this thread is gone is not to wait for it
            while True:
                self._queue.get_nowait()()
        self._turned()

    def _serve(self) -> None:
        while not self._is_over():
            try:
                task = self._queue.get(timeout=self._wait())
            except Empty:
                task = None
            try:
                if task is not None:
                    task()
                self._run_due()
            except Exception as error:
                self._broken(error)
            self._turned()

    def _turned(self) -> None:
        with suppress(Empty):
            while True:
                self._turns.get_nowait().set_result(None)

    def _is_over(self) -> bool:
        """Stopped, and no deletion, put or timer is left that would have something done."""
        idle = self._in_hand == 0 and all(ticket in self._cancelled for _, _, ticket, _ in self._due)
        return self._stopped and idle and self._queue.empty()

    def _wait(self) -> float | None:
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else None

    def _run_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            _, _, ticket, task = heapq.heappop(self._due)
            if ticket in self._cancelled:
                self._cancelled.discard(ticket)
            else:
                task()

    def _later(self, seconds: float, task: Callable[[], None], ticket: int | None = None) -> None:
        if not self._ending:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), ticket, task))

    def _end(self) -> None:
        self._ending = True
        self._due.clear()
        unasked, self._unasked = self._unasked, {}
        for question in unasked.values():
            self._handle(self.actions.given_up(question))

    def _take(self, name: str, event: ev.Event, future: Future[Fields]) -> None:
        old = self._requests.get(name)
        if old is not None and isinstance(event, ev.StartRequested):
            self._settle(name, RefusedError(ErrorKind.INTERNAL, "the query was started again before it had been started"))
        elif old is not None:
            future.set_exception(CheckpointError(f"{name} came twice for {self.root}; the first is not answered yet"))
            return
        self._requests[name] = future
        self._handle(event)

    def _handle(self, event: ev.Event) -> None:
        for instruction in self._stream.handle(event, int(time.time() * 1000)):
            self._execute(instruction)

    def _answered(self, answer: ev.Event) -> None:
        self._in_hand -= 1
        self._handle(answer)

    def _failed(self, fault: Exception) -> None:
        self._in_hand -= 1
        self._broken(fault)

    def _broken(self, error: Exception) -> None:
        """A fault of this package: whoever waits is told, the trace goes to stderr, and the stream can only be started anew."""
        traceback.print_exception(type(error), error, error.__traceback__)
        self._stream.stage = None
        self._stopped = self._stopped or "stop" in self._requests
        message = f"internal error, please report it: {type(error).__name__}: {error}"
        self._say({"type": "log", "level": "ERROR", "message": f"{self.root}: {message}"})
        for name in list(self._requests):
            self._settle(name, RefusedError(ErrorKind.INTERNAL, message))

    # --- instructions

    def _execute(self, i: Instruction) -> None:
        if isinstance(i, do.Delete):
            self._in_hand += 1
            self._background.submit(lambda: self._perform(i))
        elif isinstance(i, do.Trimming):
            self._in_hand += 1
            self._trimming.submit(lambda: self._perform(i))
        elif isinstance(i, do.SetTimer):
            fired = ev.TimerFired(i.ticket, i.timer)
            self._later(i.after_ms / 1000, lambda: self._handle(fired), i.ticket)
        elif isinstance(i, do.CancelTimer):
            self._cancel(i.ticket)
        elif isinstance(i, do.Refused):
            self._settle(i.request.value, RefusedError(refused_kind(i), i.message))
        elif isinstance(i, do.Announce):
            storage = {"process": self._process, **self.actions.traffic.to_json()}
            self._say({"type": "event", "root": self.root, "event": i.event.value, **self._summary(i.summary), "storage": storage})
        elif isinstance(i, do.Log):
            self._say({"type": "log", "level": i.level.value, "message": f"{self.root}: {i.message}"})
        elif isinstance(i, do.Started):
            self._restored(i.restored)
            self._settle(RequestName.START.value, self._started(i))
            if i.taken_over is not None:
                self._look_who_was_here(i.taken_over, i.claim)
        elif isinstance(i, do.Compare):
            files = self.actions.handover.given(i.files)
            self._settle(RequestName.START.value, {"compare": {"path": i.path, "epoch": i.epoch, "files": files}})
        elif isinstance(i, do.Resumed):
            self._settle(RequestName.RESUME.value, {})
        elif isinstance(i, do.Triggered):
            self._settle(RequestName.TRIGGER.value, {"barrier": self._barrier(i, i.base, i.checkpoint, i.late)})
        elif isinstance(i, do.Sealed):
            self._settle(RequestName.SEAL.value, {"checkpoint": self._maybe_summary(i.summary), "lag": i.lag.to_json()})
        elif isinstance(i, do.Finished):
            self._settle(RequestName.FINISH.value, {"savepoint": i.savepoint})
        elif isinstance(i, do.Late):
            self._say({"type": "late", "root": self.root, "run": i.run, "epoch": i.epoch})
        elif isinstance(i, do.Stopping):
            self._say({"type": "stopping", "root": self.root, "drain": i.drain})
        elif isinstance(i, do.Failed):
            self._say({"type": "failed", "root": self.root, "kind": i.kind.value, "message": i.message})
        elif isinstance(i, do.Stopped):
            self._stopped = True
            self._settle("stop", {})
        elif i.attempt == 0:
            self._ask(i)
        else:
            self._unasked[i.ticket] = i
            self._later(min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(i.attempt - 1, DOUBLINGS)), lambda: self._ask(i))

    def _ask(self, question: do.Question) -> None:
        self._unasked.pop(question.ticket, None)
        self._in_hand += 1
        self._foreground.submit(lambda: self._perform(question))

    def _perform(self, asked: do.Question | do.Delete | do.Trimming) -> None:
        """In a pool's thread."""
        try:
            answer = self.actions.perform(asked)
        except Exception as error:
            fault = error
            self._queue.put(lambda: self._failed(fault))
        else:
            self._queue.put(lambda: self._answered(answer))

    def _look_who_was_here(self, last: Claim, claim: int) -> None:
        """One stream, two applications: said aloud where the other one was alive a moment ago."""

        def look() -> None:
            with suppress(CheckpointError):
                pause = self.actions.pause_before(claim)
                if pause is not None and pause < RECENT_MS:
                    self._say({"type": "log", "level": "WARN", "message": f"{self.root}: {taken_over_message(last, pause)}"})
            self._queue.put(self._looked)

        self._in_hand += 1
        self._foreground.submit(look)

    def _looked(self) -> None:
        self._in_hand -= 1

    def _cancel(self, ticket: int) -> None:
        if any(entry[2] == ticket for entry in self._due):
            self._cancelled.add(ticket)

    def _settle(self, name: str, result: Fields | RefusedError) -> None:
        future = self._requests.pop(name, None)
        if future is None:
            return
        if isinstance(result, RefusedError):
            future.set_exception(result)
        else:
            future.set_result(result)

    # --- what the JVM is told

    def _barrier(self, i: do.Started | do.Triggered, base: CheckpointId | None, checkpoint: bool, late: int | None = None) -> str:
        """The local property `spark.ckpt.barrier` (docs/pipes.md)."""
        doc = {
            "root": self.root,
            "stream": self.actions.url,
            "run": i.run,
            "epoch": i.epoch,
            "base": base.to_json() if base else None,
            "time_ms": i.time_ms,
            "checkpoint": checkpoint,
            "late": late,
            "version": i.version,
            "sparse": i.sparse if isinstance(i, do.Triggered) else (),
        }
        return json.dumps(doc, separators=(",", ":"))

    def _started(self, i: do.Started) -> Fields:
        """What was listed for epochs that are still to run belongs to the sources' logs from the start: a source reads its own when it is
        made."""
        listed = {path: content for p in i.planned for path, content in sources_of(p.files).items() if content is not None}
        offsets = {offsets_file(p.epoch): p.offsets for p in i.planned}
        given = self.actions.handover.given({**i.files, **listed, **offsets})
        return {
            "run": i.run,
            "claim": i.claim,
            "origin": i.origin.to_json() if i.origin else None,
            "files": {path: content for path, content in given.items() if path not in offsets},
            "epoch": i.epoch,
            "barrier": self._barrier(i, i.origin, i.gate is Gate.EPOCH),
            "gate": i.gate.value,
            "planned": [{"epoch": p.epoch, "offsets": given[offsets_file(p.epoch)]} for p in i.planned],
        }

    def _maybe_summary(self, summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return self._summary(summary) if summary is not None else None

    def _summary(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        checkpoint = CheckpointId(summary["run"], summary["epoch"])
        return {**summary, "path": f"{self.actions.url}/{paths.checkpoint_prefix(checkpoint).rstrip('/')}"}


def refused_kind(i: do.Refused) -> ErrorKind:
    """What a run meets, the next start goes round. What a start meets, it has gone round already as far as that can be done."""
    final = i.request is RequestName.START and i.kind in (ErrorKind.DAMAGED, ErrorKind.MISSING)
    return ErrorKind.UNUSABLE if final else i.kind


def taken_over_message(last: Claim, pause_ms: int) -> str:
    app = last.application
    whose = f"application {app.name} ({app.id}) of {app.user}" if app else "another application"
    return (
        f"run {last.run}, of {printable(whose)} on host {printable(last.host)}, appended to the stream's log {pause_ms / 1000:.0f} s "
        "before this one claimed it. Was that application stopped, or has it died, this is a restart and all is well. If it still runs, "
        "two applications share this checkpointLocation: it stops at its next epoch, and this one has taken over its state; give one of "
        "the two a checkpointLocation or a spark.ckpt.storage of its own"
    )
