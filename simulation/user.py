"""A person who asks running streams for savepoints and checkpoints: requests in the log, and their answers; and who goes back to one."""

from __future__ import annotations

import random

from simulation.claim_checks import checkpoint_at, own_path
from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.query import SimulatedQuery
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import CHECKPOINT, STOP, Request, encode
from spark_ckpt.protocol.reasons import Outcome


class User:
    """`asked`: log entry of every request -> the claim under which it was made."""

    def __init__(self, env: Environment, changes: random.Random, drains: bool = True) -> None:
        """`changes`: a source of its own, without which a seed is the schedule that it would be if the query never changed. `drains`:
        people ask for drains, which a query in real time refuses."""
        self._drains = drains
        self.asked: dict[int, int] = {}
        self._env = env
        self._changes = changes
        self._query = SimulatedQuery()
        self._made = 0
        self._had_ended: dict[int, int] = {}
        """Request for a checkpoint -> the newest epoch that had ended when it was put, as its driver knew, or before and runs again."""

    def ask(self, action: str) -> None:
        """Put behind the log's tail, under the last claim; again if somebody was faster."""
        world = self._env.world
        if world.log.last_claim is None:
            return
        tail, claim, run = world.log.tail, world.log.last_claim.claim, world.log.last_claim.run
        before = max((epoch for one, epoch in self._env.ended.items() if one < run), default=-1)
        again = max((epoch for epoch in world.log.last_claim.adopted_past(-1).values() if epoch <= before), default=-1)
        self._made += 1
        drain = action == STOP and self._env.rng.random() < 0.5 and self._drains
        request = Request(claim, action, "", "person", drain=drain, nonce=f"n{self._made}", floor=world.log.floor)

        def put() -> None:
            if world.put_entry(tail + 1, encode(request), 0) is Outcome.STORED:
                self._env.tell(f"a person asks in log entry {tail + 1}: {request.action}{' and drain' if drain else ''}")
                self.asked[tail + 1] = claim
                self._env.observed[Observed.DEMANDED if action == CHECKPOINT else Observed.ASKED] += 1
                if action == CHECKPOINT:
                    self._had_ended[tail + 1] = max(self._env.ended.get(run, -1), again)
            else:
                self.ask(action)

        self._env.clock.after(self._env.delay(), put)

    def changed(self) -> SimulatedQuery:
        """The query that is started next."""
        if self._changes.random() < self._env.faults.change:
            self._query = SimulatedQuery(1 - self._query.sum)
            self._env.observed[Observed.CHANGED] += 1
        return self._query

    def choose(self, discard: bool) -> ev.Restore | None:
        """Something to go on from: a savepoint, or a checkpoint that is there now. `discard`: whether plans past it may be discarded."""
        world, rng = self._env.world, self._env.rng
        own = sorted(world.checkpoints)
        choices: list[CheckpointId | str] = [*own, *own, *sorted(world.savepoints)]
        if not choices:
            return None
        chosen = rng.choice(choices)
        discards = discard and rng.random() < 0.5
        owned = rng.random() < 0.3
        if isinstance(chosen, CheckpointId):
            return ev.Restore(own_path(chosen), chosen, owned, discards)
        return ev.Restore(chosen, None, owned, discards)

    def stands_by(self, choice: ev.Restore | None) -> bool:
        """Past one whose `_metadata` was not there at all, a start counts too few, and takes for retained what a living run may just
        delete: nobody chooses that."""
        own = choice.own if choice is not None else None
        return own is None or not any(own.run == v.run and own.epoch <= v.epoch for v in self._env.world.damage.vanished)

    @property
    def waiting(self) -> list[int]:
        """Requests that are not answered, and whose run was not superseded: of others nobody expects an answer."""
        world = self._env.world
        return [n for n, claim in self.asked.items() if n not in world.answers and not world.log.superseded(claim)]

    def check(self) -> None:
        """Answers that name a savepoint name one that is there; and with quiet nobody waits."""
        world = self._env.world
        for number, (path, _) in sorted(world.answers.items()):
            if path is not None and number in self._had_ended:
                self._check_checkpoint(number, path)
            elif path is not None and path not in world.savepoints and path not in world.taken_over:
                raise ViolationError(Invariant.SAVEPOINT, f"the answer to entry {number} names {path}, which is not there")
            if number in world.log.entries and number >= world.log.floor and not isinstance(world.log.entry(number), Request):
                raise ViolationError(Invariant.SAVEPOINT, f"entry {number} is answered and is no request")
        if self.waiting:
            raise ViolationError(Invariant.SAVEPOINT, f"the requests in the log entries {self.waiting} have no answer")

    def _check_checkpoint(self, number: int, path: str) -> None:
        """It was completed, by now it may have gone; and it holds all that had ended when it was asked for."""
        checkpoint, ended = checkpoint_at(path), self._had_ended[number]
        if not self._env.world.was_completed(checkpoint):
            raise ViolationError(Invariant.ON_DEMAND, f"the answer to entry {number} names {checkpoint}, which was never complete")
        if checkpoint.epoch < ended:
            raise ViolationError(Invariant.ON_DEMAND, f"the answer to entry {number} names {checkpoint}, when epoch {ended} had ended")

    def check_met(self, number: int) -> None:
        """With quiet a request is not only answered, but met."""
        path, error = self._env.world.answers.get(number, (None, "no answer"))
        if path is None:
            raise ViolationError(Invariant.SAVEPOINT, f"the request in log entry {number} was not met: {error}")
