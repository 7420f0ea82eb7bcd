"""Who damages what is stored, or lets it vanish, while runs live and between them; and who puts it back."""

from __future__ import annotations

from simulation.happened import Happened
from simulation.harm import Kind
from simulation.port import Surroundings
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import parse_driver_file_key


class Vandal:
    """A broken disk, a wrong lifecycle rule, a person who deletes what looks old."""

    def __init__(self, around: Surroundings) -> None:
        self._a = around

    def strike(self, between_runs: bool) -> None:
        """One thing. Entries of the log vanish between runs only, and never its end: put-if-absent is what fences a run."""
        world, rng = self._a.world, self._a.rng
        kind = rng.choice((Kind.GONE, Kind.ALTERED))
        what = rng.choice(("metadata", "metadata", "state", "state", "file", "entry"))
        done = ""
        if what == "metadata" and self._checkpoints:
            checkpoint = rng.choice(self._checkpoints)
            world.harm.checkpoint(checkpoint, kind, self._a.clock.now)
            done = f"_metadata of {checkpoint}"
        elif what in ("state", "file"):
            done = self._object(what == "file", kind)
        elif what == "entry" and world.tail > 1 and not world.ended:
            number = rng.randrange(1, world.tail + (kind is Kind.ALTERED))
            if kind is Kind.ALTERED or between_runs:
                world.harm.entry(number, kind)
                done = f"log entry {number}"
        if done:
            self._a.happened[Happened.DAMAGED] += 1
            self._a.tell(f"{done}: {kind.name}")

    @property
    def _checkpoints(self) -> list[CheckpointId]:
        """Where runs retain one only, not their newest: the one before is being deleted, so there is nothing to go back to."""
        found = sorted(self._a.world.checkpoints)
        if self._a.world.retained > 1:
            return found
        return [c for c in found if any(other.run == c.run and other > c for other in found)]

    def _object(self, of_driver: bool, kind: Kind) -> str:
        world = self._a.world
        spared = frozenset[str]().union(*(content.objects for c, content in world.checkpoints.items() if c not in self._checkpoints))
        named = frozenset[str]().union(*(world.checkpoints[c].objects for c in self._checkpoints), world.planned_objects()) - spared
        found = sorted(key for key in named & world.objects.keys() if (parse_driver_file_key(key) is not None) == of_driver)
        if not found:
            return ""
        key = self._a.rng.choice(found)
        world.harm.object(key, kind, self._a.clock.now, [c.id for c in world.known.values() if key in c.objects])
        return key

    def repair(self) -> None:
        """A person puts everything back."""
        if self._a.world.harm:
            self._a.happened[Happened.REPAIRED] += 1
            self._a.tell("a person puts back what was damaged")
            self._a.world.harm.repair(self._a.clock.now)
