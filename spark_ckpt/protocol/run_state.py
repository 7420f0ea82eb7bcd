"""What one run remembers, and how it ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from spark_ckpt.errors import ErrorKind, FormatError
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Content, Snapshot, objects_of
from spark_ckpt.paths import run_prefix
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.completed import CompletedCheckpointStore
from spark_ckpt.protocol.deletion import Batch, Deletions, gathered
from spark_ckpt.protocol.entries import Claim, Damage, Entry, Plan, decode
from spark_ckpt.protocol.executors import Executors
from spark_ckpt.protocol.instructions import Instruction, Level, RequestName
from spark_ckpt.protocol.large_files import LargeFiles, Unstored
from spark_ckpt.protocol.log_trim import DAY_MS, EVERY, LogTrim
from spark_ckpt.protocol.machine import Machine, Story, Tickets
from spark_ckpt.protocol.packs import sparse_packs
from spark_ckpt.protocol.planned_files import PlannedFiles
from spark_ckpt.protocol.shared import SharedStateRegistry
from spark_ckpt.protocol.start import Beginning, fenced_message

FORGET_RELEASED = 10_000
"""How many released objects are remembered, to refuse acks that name one; those whose deletion is still to come are in any case."""
MOST_PASSED = 64
"""How many calls at most pass without a deletion, when deletions fail."""


@dataclass(frozen=True)
class Settings:
    """Durations in milliseconds, sizes in bytes. `deletions`: the rule of deletion (a test may give one with a part left out).

    `interval_ms` 0: every epoch is a checkpoint. `ahead`: so many epochs may run whose plan is not stored yet (0: exactly-once).
    `log_kept_ms`, `trim_every`: how old entries of the log become at least, and how many are appended between two looks at the old ones;
    `trim`: the rules for that.
    """

    retained: int = 3
    timeout_ms: int = 600_000
    grace_ms: int = 5_000
    idle_ms: int = 5_000
    deletions: Callable[[SharedStateRegistry], Deletions] = Deletions
    interval_ms: int = 0
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    ahead: int = 0
    spool_max_bytes: int = 10 * 1024**3
    log_kept_ms: int = DAY_MS
    trim_every: int = EVERY
    trim: Callable[[PlannedFiles, int, int], LogTrim] = LogTrim


class RunPhase(Enum):
    IDLE = "IDLE"
    """Between two epochs."""
    PLANNING = "PLANNING"
    """The epoch's plan is being appended."""
    RUNNING = "RUNNING"
    """Tasks run; in exactly-once the plan is durable."""
    SEALED = "SEALED"
    """`commits/N` is known, acks are missing."""
    STORING = "STORING"
    """`_metadata` is being put."""
    READING_BACK = "READING_BACK"
    """It is unknown whether `_metadata` was put: read, compare, delete nothing."""
    REPORTING = "REPORTING"
    """Damage is being noted in the log."""
    ENDING = "ENDING"
    """The stream's end is being noted in the log."""
    ENDED = "ENDED"
    """It is noted; puts of `_metadata` that are on their way are waited for, then all goes."""
    FAILED = "FAILED"
    FENCED = "FENCED"
    STOPPED = "STOPPED"


OVER = (RunPhase.REPORTING, RunPhase.ENDING, RunPhase.ENDED, RunPhase.FAILED, RunPhase.FENCED, RunPhase.STOPPED)


class RunState(Machine):
    """The memory of a run, without the transitions. What depends on the mode is a method that `Run` and `IntervalRun` give."""

    def __init__(self, beginning: Beginning, settings: Settings, tickets: Tickets, story: Story) -> None:
        super().__init__(RunPhase.RUNNING if beginning.plan else RunPhase.IDLE, tickets, story)
        self.claim: Claim = beginning.claim
        self._settings = settings
        self._next_number = beginning.next_number
        self._epoch = beginning.epoch
        self._recorded = {plan.epoch: plan for plan in beginning.recorded}
        self._numbers = dict(beginning.numbers)
        self._files = beginning.files
        self._registry = SharedStateRegistry()
        for checkpoint in (*beginning.inherited, *beginning.aside):
            self._registry.register(checkpoint)
        origin_last = sorted(beginning.inherited, key=lambda c: beginning.origin is not None and c.id == beginning.origin.id)
        self._store = CompletedCheckpointStore(settings.retained, origin_last, beginning.aside)
        self._deletions = settings.deletions(self._registry)
        self._released: dict[str, None] = {}
        self._large = LargeFiles(self.claim.run, self._files, self._released.__contains__)
        self._storing: dict[int, Unstored] = {}
        planned = self._deletions.planned
        planned.since = beginning.next_number
        for number, objects in beginning.planned.items():
            planned.add(number, objects)
        self._floor = beginning.floor
        self._stored_ms = beginning.stored_ms
        self._trim = settings.trim(planned, settings.log_kept_ms, settings.trim_every)
        self._replaced = beginning.replaced
        self._undeleted: list[Batch] = []
        self._deletion_failures = self._deletion_pause = 0
        self._deleting: dict[int, Batch] = {}
        self._strays: dict[str, int] = {}
        self._executors = Executors()
        self._plan: Plan | None = beginning.plan
        self._plan_ms = 0
        self._asked_ms = 0
        self._timers: dict[ev.Timer, int] = {}
        self._look: int | None = None
        self._cause = ""
        self._attempt = 0
        self._failure = (ErrorKind.INTERNAL, "")
        self._damage: Damage | None = None
        self._stop_waits = False
        self._puts: dict[int, CheckpointId] = {}
        self._going = Batch((), ())
        self._used = -1

    # --- what others may look at

    @property
    def base(self) -> CheckpointId | None:
        """The newest completed checkpoint."""
        return self._store.newest.id if self._store.newest else None

    @property
    def _version(self) -> int | None:
        """`Triggered.version` of the epoch in hand."""
        origin = self.claim.origin
        return (origin.epoch + 1 if origin is not None else 0) if self._epoch == self.claim.first else None

    @property
    def _sparse(self) -> tuple[str, ...]:
        """`Triggered.sparse`, by the newest completed checkpoint."""
        newest = self._store.newest
        return sparse_packs(newest.snapshots) if newest else ()

    @property
    def completed(self) -> tuple[CheckpointId, ...]:
        return self._store.ids

    # --- timers

    def _set(self, timer: ev.Timer, after_ms: int) -> list[Instruction]:
        cancelled = self._cancel(timer)
        self._timers[timer] = self.ticket()
        return [*cancelled, do.SetTimer(self._timers[timer], timer, after_ms)]

    def _cancel(self, *timers: ev.Timer) -> list[Instruction]:
        cancelled: list[Instruction] = []
        for timer in timers:
            ticket = self._timers.pop(timer, None)
            if ticket is not None:
                self.forget(ticket)
                cancelled.append(do.CancelTimer(ticket))
        return cancelled

    # --- what depends on the mode

    @abstractmethod
    def _open_requests(self) -> list[RequestName]:
        """Those that wait for an answer."""

    @abstractmethod
    def _named_by_pending(self) -> frozenset[str]:
        """Objects that checkpoints in the making need."""

    @abstractmethod
    def _finalising(self) -> frozenset[CheckpointId]:
        """Checkpoints in the making whose `_metadata` may be there."""

    @abstractmethod
    def _discard_pending(self) -> None:
        """The run is over: what is in the making is given up, and nothing of it is deleted."""

    def _last_triggered(self) -> int:
        """The newest epoch that was triggered, or is about to be."""
        return self._epoch - 1 if self.phase is RunPhase.IDLE else self._epoch

    def _refuse_open(self, kind: ErrorKind, message: str) -> list[Instruction]:
        return [do.Refused(request, kind, message) for request in self._open_requests()]

    def _out_of_order(self, request: RequestName, epoch: int) -> Instruction:
        return do.Refused(
            request, ErrorKind.INTERNAL, f"{request.value} of epoch {epoch} came while epoch {self._epoch} was due; please report it"
        )

    def _decode(self, event: ev.EntryRead) -> Entry | None:
        assert event.data is not None
        try:
            return decode(event.number, event.data)
        except FormatError:
            return None

    def _decode_past(self, event: ev.PastSeen) -> Entry | None:
        assert event.found is not None
        return self._decode(ev.EntryRead(event.ticket, event.found, event.data)) if event.data is not None else None

    def _put_metadata(self, checkpoint: Checkpoint, ticket: int, attempt: int = 0) -> Instruction:
        self._puts[ticket] = checkpoint.id
        return do.StoreMetadata(ticket, checkpoint, attempt)

    # --- the log's old entries

    @abstractmethod
    def _lowest_pending(self) -> int | None:
        """The lowest log entry of a checkpoint in the making."""

    def _next_floor(self) -> int:
        """For the next entry. It never falls: what the one before said, which may be stored, holds.

        While no checkpoint is known to be complete, a start may need the whole log: one that is registered may be an aborted one, of whose
        `_metadata` it is not known whether it lands.
        """
        registered = self._registry.lowest_entry
        if registered is None or self._store.newest is None:
            return self._floor
        pending = self._lowest_pending()
        return max(self._floor, registered if pending is None else min(registered, pending))

    def _log_from(self, epoch: int) -> int | None:
        """`Checkpoint.log_from` of a checkpoint of the run's own."""
        return self.claim.first_adopted_past(epoch)

    def _old_listed(self, event: ev.OldEntriesListed) -> list[Instruction]:
        return self._trimming(self._trim.listed(event, self._tickets))

    def _plans_read(self, event: ev.PlansRead) -> list[Instruction]:
        return self._trimming(self._trim.read(event, self._tickets))

    def _entries_deleted(self, _event: ev.EntriesDeleted) -> list[Instruction]:
        return self._trimming(self._trim.deleted(self._tickets))

    def _last_entries_deleted(self, _event: ev.EntriesDeleted) -> list[Instruction]:
        """The run is over: what these entries have let go of goes, and the pass ends."""
        self._trim.deleted(self._tickets)
        return self._let_go()

    def _trim_failed(self, event: ev.TrimFailed) -> list[Instruction]:
        self._trim.failed()
        return [do.Log(Level.WARN, f"old entries of the log could not be deleted, which is tried again: {event.message}")]

    def _trimming(self, instructions: list[Instruction]) -> list[Instruction]:
        if self._trim.ticket is not None:
            self._awaited.add(self._trim.ticket)
        return [*instructions, *self._let_go()]

    # --- large files of the driver

    def _driver_objects(self) -> frozenset[str]:
        """Large files that the driver's folder has, or that a checkpoint in the making will name."""
        return objects_of(self._files.as_mapping().values())

    def _let_go(self) -> list[Instruction]:
        """Large files go that nothing names any more: whoever starts from a checkpoint finds all that it takes named there, or by entries
        that are still in the log. A `_metadata` that may land when the run is over names what is not remembered any more."""
        planned = self._deletions.planned
        if not planned.is_loose or self.phase is RunPhase.FENCED or (self.phase in OVER and self._puts):
            return []
        free = planned.take_free(self._driver_objects() | self._registry.named())
        return self._delete(Batch((), tuple(sorted(free)))) if free else []

    def _taken_in(self, changes: ev.Changes, epoch: int) -> tuple[dict[str, Content | None], list[Instruction]]:
        """What the driver has written or deleted, and the puts of what is large."""
        placed, new = self._large.place(changes, epoch)
        self._deletions.planned.keep(objects_of(placed.values()))
        return placed, [self._store_file(one) for one in new]

    def _take_over(self) -> list[Instruction]:
        """What a coordinator that has died had taken in with the last seal: a content has the name that it had for that one."""
        if self._replaced is None:
            return []
        placed, puts = self._taken_in(self._replaced.unplanned, self._last_triggered())
        self._files.apply(placed)
        return puts

    def _store_file(self, one: Unstored, attempt: int = 0) -> Instruction:
        ticket = self.ticket()
        self._storing[ticket] = one
        return do.StoreFile(ticket, one.handle, one.source, attempt)

    # --- deletion

    def _release(self, snapshots: Iterable[Snapshot]) -> None:
        """What losing and aborted attempts uploaded may go once a later checkpoint completes, less all that anything names."""
        own = run_prefix(self.claim.run)
        objects = {h.object for snapshot in snapshots for h in snapshot.handles}
        theirs = {o for o in objects if o.startswith(own) and o not in self._released}
        if theirs:
            self._strays.update(dict.fromkeys(sorted(theirs - self._named_by_pending()), self._last_triggered()))

    def _heard(self, left: ev.LeftAcksRead) -> None:
        """Nobody reads these acknowledgements again once a later checkpoint completes."""
        self._strays.update((key, self._last_triggered()) for key in left.keys if key not in self._released)

    def _keep(self, names: Iterable[str]) -> None:
        """An ack that counts names these."""
        kept = set(names)
        self._deletions.keep(kept)
        for name in kept:
            self._strays.pop(name, None)

    def _released_object(self, ack: Ack) -> str | None:
        """An object that the ack names, although it was released."""
        return next((o for o in sorted({h.object for h in ack.snapshot.handles}) if o in self._released), None)

    def _delete(self, batch: Batch | None, at_last: bool = False) -> list[Instruction]:
        """What is new, and what failed before. After failures more and more calls pass without a request (`at_last`: this one does not):
        a storage that refuses deletions would be asked for more with every epoch."""
        waiting = self._undeleted
        if batch:
            self._released.update(dict.fromkeys(batch.objects))
            while len(self._released) > FORGET_RELEASED and not waiting:
                del self._released[next(iter(self._released))]
            waiting.append(batch)
        if self._deletion_pause and not at_last:
            self._deletion_pause -= 1
            return []
        self._undeleted = []
        return [self._deletion(b) for b in gathered(waiting, lambda b: self._source_of(b) is not None)]

    def _deletion(self, batch: Batch) -> Instruction:
        ticket = self.ticket()
        self._deleting[ticket] = batch
        return do.Delete(ticket, batch.checkpoints, batch.objects, self._source_of(batch))

    def _source_of(self, batch: Batch) -> str | None:
        """The folder that the stream took over with a checkpoint goes when that does (CLAIM)."""
        restored = self.claim.restored
        return restored.path if restored and restored.owned and restored.imported in batch.checkpoints else None

    def _deleted(self, event: ev.Deleted) -> list[Instruction]:
        batch = self._deleting.pop(event.ticket)
        if event.failure is None:
            self._deletion_failures = self._deletion_pause = 0
            self._deletions.deleted(batch)
            return self._let_go()
        self._undeleted.append(batch)
        self._deletion_failures += 1
        self._deletion_pause = min(2**self._deletion_failures, MOST_PASSED) - 2
        return [do.Log(Level.WARN, f"old checkpoints could not be deleted, which is tried again: {event.failure}")]

    # --- the ends

    def _over(self, phase: RunPhase, kind: ErrorKind, message: str) -> list[Instruction]:
        self.phase = phase
        self._failure = (kind, message)
        self._discard_pending()
        cancelled = self._cancel(*ev.Timer)
        self._await_deletions()
        return cancelled

    def _await_deletions(self) -> None:
        """And nothing else any more. What deleted entries of the log have named goes with them, else only `gc` would find it."""
        self._awaited &= {*self._deleting, self._trim.deletion}

    def _fenced(self, number: int, entry: Entry | None) -> list[Instruction]:
        """Listeners are told nothing: the stream is somebody else's. The query ends, also if it asks for nothing."""
        if entry is None:
            message = f"log entry {number} was written by a release this one cannot read; run {self.claim.run} stops"
        else:
            message = fenced_message(self.claim, number, entry)
        self._deletions.append_failed(number)
        refused = self._refuse_open(ErrorKind.FENCED, message)
        return [*self._over(RunPhase.FENCED, ErrorKind.FENCED, message), *refused, do.Failed(ErrorKind.FENCED, message)]
