"""Who damages what is stored, or lets it vanish, while runs live and between them; and who puts it back."""

from __future__ import annotations

from simulation.environment import Environment
from simulation.observed import Observed
from simulation.stored_damage import DamageKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import parse_driver_file_key


class Vandal:
    """A broken disk, a wrong lifecycle rule, a person who deletes what looks old."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def strike(self, between_runs: bool) -> None:
        """One thing. Entries of the log vanish between runs only, and never its end: put-if-absent is what fences a run."""
        world, rng = self._env.world, self._env.rng
        kind = rng.choice((DamageKind.GONE, DamageKind.ALTERED))
        what = rng.choice(("metadata", "metadata", "state", "state", "file", "entry"))
        done = ""
        if what == "metadata" and self._checkpoints:
            checkpoint = rng.choice(self._checkpoints)
            world.damage.checkpoint(checkpoint, kind, self._env.clock.now)
            done = f"_metadata of {checkpoint}"
        elif what in ("state", "file"):
            done = self._object(what == "file", kind)
        elif what == "entry" and world.log.tail > 1 and not world.log.ended:
            number = rng.randrange(1, world.log.tail + (kind is DamageKind.ALTERED))
            if kind is DamageKind.ALTERED or between_runs:
                world.damage.entry(number, kind)
                done = f"log entry {number}"
        if done:
            self._env.observed[Observed.DAMAGED] += 1
            self._env.tell(f"{done}: {kind.name}")

    @property
    def _checkpoints(self) -> list[CheckpointId]:
        """Where runs retain one only, not their newest, nor what the stream goes on from, which an older run may have gone past since: the
        one before is being deleted, so there is nothing to go back to."""
        world = self._env.world
        found = sorted(world.checkpoints)
        if world.retained > 1:
            return found
        base = world.newest_of_lineage(world.log.last_claim, self._env.clock.now)
        return [c for c in found if c != base and any(other.run == c.run and other > c for other in found)]

    def _object(self, of_driver: bool, kind: DamageKind) -> str:
        world = self._env.world
        spared = frozenset[str]().union(*(content.objects for c, content in world.checkpoints.items() if c not in self._checkpoints))
        named = frozenset[str]().union(*(world.checkpoints[c].objects for c in self._checkpoints), world.log.planned_objects()) - spared
        found = sorted(key for key in named & world.objects.keys() if (parse_driver_file_key(key) is not None) == of_driver)
        if not found:
            return ""
        key = self._env.rng.choice(found)
        world.damage.object(key, kind, self._env.clock.now, [c.id for c in world.known.values() if key in c.objects])
        return key

    def repair(self) -> None:
        """A person puts everything back."""
        if self._env.world.damage:
            self._env.observed[Observed.REPAIRED] += 1
            self._env.tell("a person puts back what was damaged")
            self._env.world.damage.repair(self._env.clock.now)
