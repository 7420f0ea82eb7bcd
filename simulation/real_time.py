"""A simulated driver whose query has a real-time trigger."""

from __future__ import annotations

from functools import partial

from simulation.chains import Attempt, Barrier, commit_of
from simulation.driver import Driver
from simulation.hook import states_of
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.source_sink import Span
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import offsets_file
from spark_ckpt.protocol.entries import Plan

UNRECORDED = 2
"""So many epochs before the one that may begin, all is in the log: `Claim.ahead`."""


class RealTimeDriver(Driver):
    """What its epochs read nobody knows before they end. What was planned as micro-batches runs so first, in a run of its own."""

    REAL_TIME = True

    @property
    def _in_real_time(self) -> bool:
        return self.process.started is not None and self.process.started.real_time

    def _begin(self, i: do.Started) -> None:
        super()._begin(i)
        begins = self._folder.begins
        if i.real_time and i.origin is None and begins != self._env.begins and (begins is not None or self._had_read(i.claim)):
            raise ViolationError(Invariant.FILES_RIGHT, f"{self.name} begins at {begins} instead of {self._env.begins}")
        self._env.observed[Observed.SWITCHED] += i.real_time and self._made > 1

    def _had_read(self, claim: int) -> bool:
        """Whether the log says so of an epoch of this stream before that claim, as long as it was not deleted: of what came later, a driver
        that has slept knows nothing."""
        log = self._env.world.log
        entries = (log.entry(n) for n in sorted(log.entries) if log.last_end < n < claim)
        return any(isinstance(entry, Plan) and entry.real_time for entry in entries)

    def _next_epoch(self) -> None:
        if self._in_real_time or self._position.epoch in self._planned or self._stops.is_open or self._finishing:
            super()._next_epoch()
        else:
            self.process.ask(ev.FinishRequested())

    def _plan(self, offsets: bytes, drain: bool = False) -> None:
        if not self._in_real_time:
            super()._plan(offsets, drain)
            return
        at = self._position
        at.triggered = at.epoch
        at.reads = Span.decode(offsets).end
        self.process.ask(ev.TriggerRequested(at.epoch, b"", self._folder.begin(at.epoch, self._env.begins)))

    def _in_log(self, epoch: int) -> int:
        return epoch - UNRECORDED if self._in_real_time else super()._in_log(epoch)

    def _run_epoch(self, base: CheckpointId | None, barrier: Barrier, version: int | None) -> None:
        if self._in_real_time:
            assert self.process.started is not None
            self._sink.open(self._position.epoch, f"{self.name} in run {self.process.started.run}")
            self._env.observed[Observed.REAL_TIME] += 1
        super()._run_epoch(base, barrier, version)

    def _span_in_hand(self) -> Span:
        return Span(self._position.end, self._position.reads) if self._in_real_time else super()._span_in_hand()

    def _seal(self, attempt: Attempt) -> None:
        if not self._in_real_time:
            super()._seal(attempt)
        elif attempt is self._attempt:
            offsets = attempt.span.encode()
            self._folder.read(attempt.epoch, offsets)
            hooks = states_of(attempt.epoch, attempt.span.end)
            self.process.ask(ev.SealRequested(attempt.epoch, commit_of(attempt), self._folder.seal(attempt.epoch), hooks, offsets))

    def _finished(self, i: do.Finished) -> None:
        """Of a run with micro-batches: what was planned has run. Who asked for the end meanwhile is answered by this one, whatever it was
        for."""
        ends_as_asked = i.savepoint is not None and self.process.variant.ends_between
        if self._in_real_time or self._finishing or ends_as_asked:
            super()._finished(i)
            return
        self.process.open = None
        self.process.soon(partial(self._switch, self._made))

    def _switch(self, made: int) -> None:
        if made == self._made:
            self.start()

    def resume_request(self, started: do.Started) -> ev.ResumeRequested:
        asked = super().resume_request(started)
        if not self._in_real_time:
            return asked
        at = self._position
        read = {offsets_file(n): self._folder[offsets_file(n)] for n in (at.sealed - 1, at.sealed) if offsets_file(n) in self._folder.paths}
        running = self._attempt is not None and self._attempt.epoch == at.triggered
        return ev.ResumeRequested(
            asked.run,
            asked.claim,
            asked.epoch,
            asked.forgetful,
            asked.sealed,
            {**asked.files, **read},
            asked.hooks,
            asked.sealed_hooks,
            real_time=True,
            running=running,
        )
