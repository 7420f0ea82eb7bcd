"""One run in the interval mode: epochs follow each other without waiting for checkpoints, which complete in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import ClassVar

from spark_ckpt.errors import ErrorKind, FormatError
from spark_ckpt.model import Content
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.background import Final, SealedEpoch
from spark_ckpt.protocol.commit import required_ids
from spark_ckpt.protocol.driver_files import commits_file, offsets_file
from spark_ckpt.protocol.entries import Plan
from spark_ckpt.protocol.instructions import Instruction, Level, RequestName
from spark_ckpt.protocol.interval_checkpoints import IntervalCheckpoints
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.reasons import AbortReason
from spark_ckpt.protocol.run_ending import of_either_mode
from spark_ckpt.protocol.run_state import OVER, RunPhase, Settings
from spark_ckpt.protocol.start import Beginning

_LIVE = (RunPhase.IDLE, RunPhase.PLANNING, RunPhase.RUNNING)


class IntervalRun(IntervalCheckpoints):
    """The epoch in hand, and when a checkpoint begins.

    Plans stand in a line, the first of which is being appended. In exactly-once an epoch starts when its plan has left the line, in
    at-least-once when at most `Settings.ahead` are in it and a successor is sure to find a checkpoint to go back to.
    """

    def __init__(self, beginning: Beginning, settings: Settings, tickets: Tickets, story: Story) -> None:
        super().__init__(beginning, settings, tickets, story)
        self._in_hand = beginning.plan
        self._line: deque[Plan] = deque()
        self._known = beginning.claim.origin is not None
        self._appended_with_base = False
        self._long = False
        """The epoch in hand has run for a whole interval: until it ends, what is done while idle is done all the same."""

    def begin(self, now_ms: int) -> list[Instruction]:
        """What a new run does first."""
        self.now_ms = now_ms
        self._asked_ms = now_ms
        if self.phase is RunPhase.RUNNING:
            self._loads_from_base()
        self._supersede(self._store.cut())
        idle = self._set(ev.Timer.IDLE, self._settings.idle_ms) if self.phase is RunPhase.IDLE else []
        if self._replaced is None:
            long = self._watch() if self.phase is RunPhase.RUNNING else []
            return [*self._set(ev.Timer.INTERVAL, self._schedule.first_delay_ms(self.claim.nonce)), *long, *idle]
        puts = self._take_over()
        # What was in the making is forgotten, hence the next one is due.
        self._schedule.due = True
        # In at-least-once the driver may be past an epoch whose plan is lost, and with it the driver's files that went with that plan: the
        # query goes back, and what it goes back to must not be made without these files.
        ahead = bool(self.claim.ahead) and self.phase is RunPhase.IDLE and self._replaced.in_hand > self._replaced.sealed
        if self._replaced.sealed > self._completed_epoch and not ahead:
            commit = self._files.get(commits_file(self._replaced.sealed))
            content = commit if isinstance(commit, bytes) else b""
            self._sealed = _sealed(self._replaced.sealed, content, now_ms, self._files.as_mapping())
        # Nothing is bridged while the epoch in hand runs: which of the driver's files are only its own is not known.
        return [*puts, *self._turn_away_lost(), *idle, *self._proceed()]

    def _loads_from_base(self) -> None:
        if self.base is not None:
            self._base_until[self.base] = self._epoch

    def _open_requests(self) -> list[RequestName]:
        trigger = [RequestName.TRIGGER] if self.phase is RunPhase.PLANNING else []
        return [*trigger, *super()._open_requests()]

    # --- timers

    def _timer_fired(self, event: ev.TimerFired) -> list[Instruction]:
        if event.timer is ev.Timer.EXPIRY:
            expired = next((p for p in self._pendings if p.expiry == event.ticket), None)
            return self._expired(expired) if expired else []
        self._timers.pop(event.timer, None)
        if event.timer is ev.Timer.GRACE:
            return self._grace_over()
        if event.timer is ev.Timer.PLAN:
            return self._plan_timed_out()
        if event.timer is ev.Timer.LONG:
            self._long = True
            return [*self._proceed(), *([] if self._line else self._look_at_log())]
        if event.timer is ev.Timer.IDLE:
            if self._line or not self._quiet:
                return []
            return [*self._proceed(pressure=True), *self._look_at_log()]
        if event.timer is ev.Timer.INTERVAL:
            self._schedule.due = True
        else:
            self._schedule.pausing = False
        return self._proceed()

    @property
    def is_long(self) -> bool:
        """Whether the epoch in hand has run for a whole interval."""
        return self._long

    @property
    def _quiet(self) -> bool:
        """No barrier is to be expected soon: no epoch runs, or a long one does."""
        return self.phase is RunPhase.IDLE or self._long

    def _watch(self) -> list[Instruction]:
        """An epoch begins to run."""
        self._long = False
        return self._set(ev.Timer.LONG, self._schedule.interval_ms)

    # --- the log

    def _entry_read(self, event: ev.EntryRead) -> list[Instruction]:
        return self._looked(event) if event.ticket == self._look else self._plan_read_back(event)

    def _read_failed(self, event: ev.ReadFailed) -> list[Instruction]:
        if event.ticket in self._asked:
            return self._read_back_failed(event)
        return self._look_failed(event) if event.ticket == self._look else self._plan_read_failed(event)

    # --- trigger

    def _planned(self, plan: Plan) -> list[Instruction]:
        self._in_hand = plan
        instructions = self._stop_looking()
        self._line.append(plan)
        if len(self._line) == 1:
            instructions += self._append_plan(plan)
        if self.phase in OVER:  # no plan can be stored that no reader would take
            return instructions
        if len(self._line) <= self._may_be_ahead:
            return [*instructions, *self._go()]
        return [*instructions, *self._set(ev.Timer.PLAN, self._settings.timeout_ms)]

    def _trigger_again(self, event: ev.TriggerRequested) -> list[Instruction]:
        """Sent again because the coordinator that got it first died."""
        if event.epoch != self._epoch or self._in_hand is None or not self._in_hand.same_data(Plan(0, 0, event.epoch, event.offsets)):
            return [self._out_of_order(RequestName.TRIGGER, event.epoch)]
        written, puts = self._taken_in(event.files, event.epoch)
        self._files.apply({**written, offsets_file(event.epoch): event.offsets})
        return [*puts, self._barrier()]

    @property
    def _may_be_ahead(self) -> int:
        """Without a checkpoint there is no state that could go on under new numbers, so every number must be accounted for.

        One of the run's own counts when an append that was issued after its completion has succeeded: (1) a successor lists, and finds
        none; (2) this run completes its first, and an epoch runs ahead of its plan; (3) the successor claims, and gives out its number.
        """
        return self._settings.ahead if self._known else 0

    def _append_plan(self, plan: Plan) -> list[Instruction]:
        self._appended_with_base = self.base is not None
        return super()._append_plan(plan)

    def _plan_failed(self, kind: ErrorKind, message: str) -> list[Instruction]:
        return self._fail(kind, message)

    def _plan_stored(self, number: int) -> list[Instruction]:
        plan = self._line.popleft()
        self._known = self._known or self._appended_with_base
        self._numbers.setdefault(plan.epoch, number)
        instructions: list[Instruction] = []
        if self.phase is RunPhase.PLANNING and len(self._line) <= self._may_be_ahead:
            instructions += self._go()
        if self._line:
            instructions += self._append_plan(self._line[0])
        elif self._quiet:
            instructions += self._set(ev.Timer.IDLE, self._settings.idle_ms)
        p = self._pending_of(plan.epoch)
        if p is not None and not p.log:
            p.log = self._numbers[plan.epoch]
            instructions += self._maybe_finalise(p)
        return instructions + self._delete(self._deletions.append_stored(number, self._named_by_pending()))

    def _go(self) -> list[Instruction]:
        """The epoch may run. Whether it is a checkpoint is decided now."""
        self.phase = RunPhase.RUNNING
        self._plan_ms = self.now_ms - self._asked_ms
        self._loads_from_base()
        begun = self._begin_checkpoint(self._epoch, self._asked_ms, pressure=True)
        return [*self._cancel(ev.Timer.PLAN), *self._watch(), self._barrier(), *begun]

    def _barrier(self) -> Instruction:
        late = next((p.epoch for p in self._pendings if p.late), None)
        checkpoint = self._pending_of(self._epoch) is not None
        sparse = self._sparse if checkpoint else ()
        return do.Triggered(self.claim.run, self._epoch, self.base, self.now_ms, checkpoint, late, self._version, sparse)

    # --- when a checkpoint begins

    @property
    def _pressure(self) -> bool:
        """A spool is half full of what only a checkpoint frees."""
        return self._executors.fullest > self._settings.spool_max_bytes // 2

    def _begin_checkpoint(self, epoch: int, triggered_ms: int, pressure: bool) -> list[Instruction]:
        """If one is due or asked for. One that is asked for is a savepoint, and counts neither as pending nor when it fails."""
        ending = self._finishing is not None
        asked = self._desk.wants(ending)
        due = self._schedule.wants(self._uploading, pressure and self._pressure)
        if not (asked or due or ending):
            return []
        ghost = next((g for g in self._ghosts if g.epoch == epoch), None)
        begun = self._revive(ghost) if ghost else self._new_background(epoch, self._numbers.get(epoch, 0), triggered_ms)
        if asked:
            self._for_savepoint(epoch)
        if due:
            self._schedule.due = False
            begun = [*self._set(ev.Timer.INTERVAL, self._schedule.interval_ms), *begun]
        return begun

    def _for_savepoint(self, epoch: int) -> None:
        p = self._pending_of(epoch)
        assert p is not None
        p.savepoint, p.bridges = True, False
        self._desk.give(epoch, self._finishing is not None)

    def _proceed(self, pressure: bool = False) -> list[Instruction]:
        """While no epoch runs there is no barrier: the newest finished epoch becomes the checkpoint, one at a time.

        While a long one runs that is true as well, and its predecessor's state lies in the spools alone. Whether they still have all of it
        nobody knows: a spool that fills up gives up what its newest epoch has replaced. So that checkpoint is given up when the long epoch
        ends, unless a savepoint needs it, and another one is due at once.
        """
        sealed, newest = self._sealed, self._store.newest
        if not self._quiet:
            return []
        if sealed is None or self._completed_epoch >= sealed.epoch:
            copies = self._desk.copy(newest, self._finishing is not None) if newest else self._nothing_to_save()
            return [*copies, *self._maybe_finished()]
        if self._pending_of(sealed.epoch):
            if self._desk.wants(self._finishing is not None):
                self._for_savepoint(sealed.epoch)
            return []
        if sealed.required is None or any(p.late for p in self._pendings):
            return []
        begun = self._begin_checkpoint(sealed.epoch, sealed.time_ms, pressure and not self._long)
        p = self._pending_of(sealed.epoch)
        if p is None:
            return begun
        p.bridges = self._long and not p.savepoint
        if p.final is not Final.NOT_YET:
            return begun
        p.late = True
        return [*begun, do.Late(self.claim.run, sealed.epoch), *self._seal_background(p, sealed)]

    # --- seal

    def _seal(self, event: ev.SealRequested) -> list[Instruction]:
        if event.epoch != self._epoch:
            return self._seal_again(event)
        written, puts = self._taken_in(event.files, event.epoch)
        self._files.apply({**written, commits_file(event.epoch): event.commit})
        self._files.forget_before(event.epoch - 1)
        self._numbers = {epoch: number for epoch, number in self._numbers.items() if epoch >= event.epoch}
        before, p = self._sealed, self._pending_of(event.epoch)
        self._sealed = _sealed(event.epoch, event.commit, self._asked_ms, self._files.as_mapping())
        self._epoch += 1
        self._in_hand = None
        self._long = False
        self.phase = RunPhase.IDLE
        required = self._sealed.required or {}
        self._unasked = {uid: ack for uid, ack in self._unasked.items() if uid in required}
        quiet = [*self._cancel(ev.Timer.LONG), *self._stop_looking()]
        idle = self._set(ev.Timer.IDLE, self._settings.idle_ms) if not self._line else []
        instructions = [do.Sealed(None, self._lag), *puts, *quiet, *idle, *self._end_bridges()]
        if self._sealed.required is None and p:
            return [*instructions, *self._abort(p, AbortReason.BAD_COMMIT, ErrorKind.DAMAGED, self._sealed.problem)]
        if self._sealed.required is None:
            return [*instructions, do.Log(Level.WARN, f"epoch {event.epoch} cannot become a checkpoint: {self._sealed.problem}")]
        if p:
            unchanged = before is not None and before.required is not None and not required.keys().isdisjoint(before.required)
            instructions += self._seal_background(p, self._sealed)
            if unchanged and p in self._pendings and p.missing and not any(q.late for q in self._pendings):
                # A store that took no part in the epoch commits nothing at its barrier, and may not be stored yet.
                p.late = True
                instructions.append(do.Late(self.claim.run, p.epoch))
        return instructions

    def _end_bridges(self) -> list[Instruction]:
        """The long epoch has ended, so a newer one than its predecessor can be a checkpoint."""
        bridges = [p for p in self._pendings if p.bridges and p.final is Final.NOT_YET]
        self._schedule.due = self._schedule.due or bool(bridges)
        message = f"epoch {self._epoch - 1} has ended first"
        return [i for p in bridges for i in self._abort(p, AbortReason.SUBSUMED, ErrorKind.CONFLICT, message)]

    def _seal_again(self, event: ev.SealRequested) -> list[Instruction]:
        """Sent again because the coordinator that answered it died; or that one let the epoch run before its plan was stored."""
        if event.epoch == self._epoch and self._replaced is not None and self.claim.ahead:
            message = f"the plan of epoch {event.epoch} was lost with the coordinator; the query has to go back to its last checkpoint"
            return [do.Refused(RequestName.SEAL, ErrorKind.LOST, message)]
        if event.epoch != self._epoch - 1 or self._files.get(commits_file(event.epoch)) != event.commit:
            return [self._out_of_order(RequestName.SEAL, event.epoch)]
        return [do.Sealed(None, self._lag)]

    # --- finish

    def _finish(self, event: ev.FinishRequested) -> list[Instruction]:
        if self._sealed is not None and self._sealed.required is None:
            return [do.Refused(RequestName.FINISH, ErrorKind.DAMAGED, f"the last epoch cannot become a checkpoint: {self._sealed.problem}")]
        return super()._finish(event)

    def _not_finished(self, epoch: int, kind: ErrorKind, message: str) -> list[Instruction]:
        if self._finishing is None or self._sealed is None or epoch != self._sealed.epoch:
            return []
        self._finishing = None
        return [do.Refused(RequestName.FINISH, kind, message)]

    TABLE: ClassVar = {
        **of_either_mode(_LIVE),
        (RunPhase.IDLE, ev.TriggerRequested): "_trigger",
        (RunPhase.RUNNING, ev.TriggerRequested): "_trigger_again",
        (RunPhase.RUNNING, ev.SealRequested): "_seal",
        (RunPhase.IDLE, ev.SealRequested): "_seal_again",
        **{(phase, ev.FinishRequested): "_finish" for phase in _LIVE},
        **{(phase, ev.EntryPut): "_plan_put" for phase in _LIVE},
        **{(phase, ev.EntryRead): "_entry_read" for phase in _LIVE},
        **{(phase, ev.PastSeen): "_past_seen" for phase in _LIVE},
        **{(phase, ev.ReadFailed): "_read_failed" for phase in _LIVE},
        **{(phase, ev.MetadataPut): "_metadata_put" for phase in _LIVE},
        **{(phase, ev.MetadataRead): "_metadata_read_back" for phase in _LIVE},
        **{(phase, ev.LeftAcksRead): "_left_acks" for phase in _LIVE},
    }


def _sealed(epoch: int, commit: bytes, time_ms: int, files: Mapping[str, Content]) -> SealedEpoch:
    try:
        return SealedEpoch(epoch, required_ids(epoch, commit), time_ms, files)
    except FormatError as error:
        return SealedEpoch(epoch, None, time_ms, files, str(error))
