"""Who damages what is stored, or lets it vanish, while runs live and between them; and who puts it back."""

from __future__ import annotations

from spark_ckpt.paths import parse_driver_file_key
from spark_ckpt.testing.simulation.happened import Happened
from spark_ckpt.testing.simulation.harm import Kind
from spark_ckpt.testing.simulation.port import Surroundings


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
        if what == "metadata" and world.checkpoints:
            checkpoint = rng.choice(sorted(world.checkpoints))
            if world.runs_ahead and world.of_run(checkpoint.run) == (checkpoint,):
                kind = Kind.ALTERED  # without any checkpoint it is not known that epochs may have run without a plan
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

    def _object(self, of_driver: bool, kind: Kind) -> str:
        world = self._a.world
        named = frozenset[str]().union(*(c.objects for c in world.checkpoints.values()), world.planned_objects())
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
