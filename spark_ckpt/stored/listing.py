"""A stream's completed checkpoints as people look at them: one row for each, in the terminal, as JSON, and in notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_ckpt.errors import DamagedError
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.storage import Storage
from spark_ckpt.stored.planned import planned_past
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Condition, Found, Overview, Use
from spark_ckpt.units import duration_text, size_text, time_text

COLUMNS = ("CHECKPOINT", "EPOCH", "TRIGGERED", "STORES", "SIZE", "NEW", "DURATION", "STATUS")
NUMBERS = ("EPOCH", "STORES", "SIZE", "NEW", "DURATION")


@dataclass(frozen=True)
class Listed:
    """`status`: the value of a `Use`, or of a `Condition` where a start could use it."""

    found: Found
    url: str
    status: str
    latest: bool
    retained: bool

    def to_json(self) -> dict[str, Any]:
        found, c = self.found, self.found.checkpoint
        document: dict[str, Any] = {
            "checkpoint": checkpoint_name(found.id),
            "run": found.id.run,
            "epoch": found.id.epoch,
            "path": self.url,
            "metadata_bytes": found.size,
            "status": self.status,
            "latest": self.latest,
        }
        if c is None:
            document["error"] = str(found.error)
        else:
            document |= {"time_ms": c.time_ms, "stores": len(c.snapshots), "size": c.size, "counters": dict(c.counters)}
        return {**document, "retained": self.retained}

    @property
    def row(self) -> tuple[str, ...]:
        """The texts of `COLUMNS`."""
        name, epoch, c = checkpoint_name(self.found.id), str(self.found.id.epoch), self.found.checkpoint
        if c is None:
            return (name, epoch, "-", "-", "-", "-", "-", self._status_text)
        new, took = c.counters.get("new_bytes"), c.counters.get("duration_ms")
        new_text = size_text(new if isinstance(new, int) else None)
        sizes = (str(len(c.snapshots)), size_text(c.size), new_text, duration_text(took))
        return (name, epoch, time_text(c.time_ms), *sizes, self._status_text)

    @property
    def _status_text(self) -> str:
        if self.latest:
            return f"{self.status}, latest"
        return self.status if self.retained or self.status != Condition.COMPLETED.value else f"{self.status}, not retained"


def listed(reader: StreamReader, overview: Overview) -> list[Listed]:
    """As `Overview.found` has them."""
    retained = overview.retained

    def one(found: Found) -> Listed:
        use = overview.use(found.id)
        status = found.condition.value if use is Use.USABLE else use.value
        return Listed(found, reader.path_of(found.id), status, found.id == overview.latest, found.id in retained)

    return [one(found) for found in overview.found]


def epochs_past_latest(storage: Storage, reader: StreamReader, overview: Overview) -> int | None:
    """How many epochs were planned past the latest checkpoint; None where the log does not tell. Raises `StorageError`."""
    if overview.standing is None or overview.standing.ended:
        return None
    try:
        planned = planned_past(storage, reader, overview.standing, overview.newest)
    except DamagedError:
        return None
    return None if planned.gaps or planned.planned_before.missing is not None else len(planned.planned_before.plans)


def owner_text(claim: Claim) -> str:
    """Who has begun the newest run."""
    app = claim.application
    whose = f"{app.name} ({app.id}) of {app.user}" if app else "an application"
    return f"run-{claim.run} was begun by {whose} on host {claim.host} at {time_text(claim.time_ms)}"
