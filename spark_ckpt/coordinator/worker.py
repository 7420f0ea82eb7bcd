"""The runtime around one stream's machine: a thread that feeds it events and has its instructions done."""

from __future__ import annotations

import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.coordinator.intake import Intake
from spark_ckpt.coordinator.messages import Fields, Messages, refused_kind, taken_over_message
from spark_ckpt.coordinator.schedule import Schedule
from spark_ckpt.coordinator.storage_work import Pools, StorageWork
from spark_ckpt.errors import CheckpointError, ErrorKind
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.instructions import Instruction, RequestName
from spark_ckpt.protocol.reasons import HandoverFailure
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.stream import Stream

RECENT_MS = 5 * 60_000
"""Who has appended to the log so shortly before a claim may still run."""

Say = Callable[[Mapping[str, Any]], None]


class RefusedError(CheckpointError):
    """What the machine refused, with the kind the JVM is told."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class StreamWorker:
    """All events of a stream pass through one queue, so the machine is never entered twice at a time.

    It ends by itself once `stop` is answered and nothing is in hand any more; `ended` hears of it.
    """

    def __init__(
        self,
        root: str,
        actions: StorageActions,
        settings: Settings,
        pools: Pools,
        say: Say,
        restored: Callable[[str | None], None],
        ended: Callable[[StreamWorker], None],
    ) -> None:
        self.root = root
        self.actions = actions
        self.spark_run_id = ""
        """Spark's run id of the start of a query that the stream belongs to; of the pipe's thread."""
        self.intake = Intake()
        """Of the pipe's thread."""
        self._restored = restored
        self._ended = ended
        self._say = say
        self._messages = Messages(root, actions)
        self._stream = Stream(settings)
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._turns: SimpleQueue[Future[None]] = SimpleQueue()
        self._requests: dict[str, Future[Fields]] = {}
        self._schedule = Schedule()
        self._storage = StorageWork(actions, pools, self._schedule, self._queue.put, self._handle, self._broken)
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

    def look(self, look: Callable[[], None]) -> None:
        """In another thread, with this one's `actions`: those are not closed before it is done. It must not raise."""
        self._queue.put(lambda: self._storage.look(look))

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
                task = self._queue.get(timeout=self._schedule.wait)
            except Empty:
                task = None
            try:
                if task is not None:
                    task()
                self._schedule.run_due()
            except Exception as error:
                self._broken(error)
            self._turned()

    def _turned(self) -> None:
        with suppress(Empty):
            while True:
                self._turns.get_nowait().set_result(None)

    def _is_over(self) -> bool:
        """Stopped, and no deletion, put or timer is left that would have something done."""
        return self._stopped and self._storage.is_idle and self._schedule.is_empty and self._queue.empty()

    def _end(self) -> None:
        self._schedule.close()
        for answer in self._storage.give_up():
            self._handle(answer)

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

    def _broken(self, error: Exception) -> None:
        """A fault of this package: whoever waits is told, the trace goes to stderr, and the stream can only be started anew."""
        traceback.print_exception(type(error), error, error.__traceback__)
        runs, wanted = self._stream.run is not None, self._stream.wanted
        self._stream.stage = None
        self._stopped = self._stopped or "stop" in self._requests
        message = f"internal error, please report it: {type(error).__name__}: {error}"
        self._say(self._messages.log("ERROR", message))
        if runs:
            self._execute(do.Failed(ErrorKind.INTERNAL, message))
        for uid in sorted(wanted):
            self._execute(do.NotHandedOver(uid, HandoverFailure.DECLINED, message))
        for name in list(self._requests):
            self._settle(name, RefusedError(ErrorKind.INTERNAL, message))

    # --- instructions

    def _execute(self, i: Instruction) -> None:
        if isinstance(i, do.SetTimer):
            fired = ev.TimerFired(i.ticket, i.timer)
            self._schedule.later(i.after_ms / 1000, lambda: self._handle(fired), i.ticket)
        elif isinstance(i, do.CancelTimer):
            self._schedule.cancel(i.ticket)
        elif isinstance(i, do.Refused):
            self._settle(i.request.value, RefusedError(refused_kind(i), i.message))
        elif isinstance(i, do.Announce):
            self._say(self._messages.event(i, self._process))
        elif isinstance(i, do.Log):
            self._say(self._messages.log(i.level.value, i.message))
        elif isinstance(i, do.Started):
            self._restored(i.restored)
            self._settle(RequestName.START.value, self._messages.started(i))
            if i.taken_over is not None:
                self._look_who_was_here(i.taken_over, i.claim)
        elif isinstance(i, do.Compare):
            self._settle(RequestName.START.value, self._messages.compare(i))
        elif isinstance(i, do.Resumed):
            self._settle(RequestName.RESUME.value, {})
        elif isinstance(i, do.Triggered):
            self._settle(RequestName.TRIGGER.value, {"barrier": self._messages.barrier(i, i.base, i.checkpoint, i.late)})
        elif isinstance(i, do.Sealed):
            self._settle(RequestName.SEAL.value, self._messages.sealed(i))
        elif isinstance(i, do.Finished):
            self._settle(RequestName.FINISH.value, {"savepoint": i.savepoint})
        elif isinstance(i, do.Late):
            self._say(self._messages.late(i))
        elif isinstance(i, do.TellHooks):
            self._say(self._messages.hooks(i))
        elif isinstance(i, do.HandOver):
            self._say(self._messages.hand_over(i))
        elif isinstance(i, (do.HandedOver, do.NotHandedOver)):
            self._say(self._messages.wanted(i))
        elif isinstance(i, do.Stopping):
            self._say(self._messages.stopping(i))
        elif isinstance(i, do.Failed):
            self._say(self._messages.failed(i))
        elif isinstance(i, do.Stopped):
            self._stopped = True
            self._settle("stop", {})
        else:
            self._storage.begin(i)

    def _look_who_was_here(self, last: Claim, claim: int) -> None:
        """One stream, two applications: said aloud where the other one was alive a moment ago."""

        def look() -> None:
            with suppress(CheckpointError):
                pause = self.actions.pause_before(claim)
                if pause is not None and pause < RECENT_MS:
                    self._say(self._messages.log("WARN", taken_over_message(last, pause)))

        self._storage.look(look)

    def _settle(self, name: str, result: Fields | RefusedError) -> None:
        future = self._requests.pop(name, None)
        if future is None:
            return
        if isinstance(result, RefusedError):
            future.set_exception(result)
        else:
            future.set_result(result)
