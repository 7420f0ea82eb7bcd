"""What cases differ in. The values are what results and docs/reliability.md call them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Victim(Enum):
    DRIVER = "driver"
    MACHINE = "machine"
    """The driver with its disk: checkpointLocation, spool and local folders."""
    EXECUTOR = "executor"
    AGENT = "agent"
    COORDINATOR = "coordinator"


class Place(Enum):
    FILE = "file"
    S3 = "s3"
    """versitygw behind toxiproxy, 20 ms away."""


class Mode(Enum):
    EVERY_EPOCH = "every epoch"
    INTERVAL = "interval"
    AT_LEAST_ONCE = "at-least-once"


class Fault(Enum):
    """What happens on the wire every few seconds, for a moment."""

    NONE = "none"
    LATENCY = "latency"
    RESET = "reset"
    LOST_ANSWER = "lost answer"
    AWAY = "away"


class Load(Enum):
    FREE = "free"
    STARVED = "starved"
    """Five busy processes for each processor."""


class Spool(Enum):
    NEW = "new"
    KEPT = "kept"
    """`spark.ckpt.spool.dir`: what an executor left there is used by the next one."""


class Sink(Enum):
    FILE = "file"
    SKIPS = "skips"
    """A foreachBatch that does nothing for a batch id that it has seen."""


class When(Enum):
    """The moment of a kill."""

    RUNNING = "running"
    """After some more epochs."""
    IDLE = "idle"
    """When all input there is has been taken."""
    SOON = "soon"
    """Shortly after the kill before: as soon as there is a coordinator, and a moment."""


@dataclass(frozen=True)
class Stream:
    operator: str
    sink: Sink


@dataclass(frozen=True)
class Kill:
    """Waits for `epochs` and then `seconds`. `alone`: the driver's JVM and nothing else; `collect`: `gc --delete` runs just before."""

    victim: Victim
    when: When
    epochs: int
    seconds: float
    alone: bool
    collect: bool


@dataclass(frozen=True)
class Case:
    """One application with a few streams, from its first start to the comparison. `conf` are settings that nothing is counted by."""

    number: int
    seed: int
    place: Place
    mode: Mode
    fault: Fault
    load: Load
    spool: Spool
    streams: tuple[Stream, ...]
    kills: tuple[Kill, ...]
    conf: tuple[tuple[str, str], ...]

    def settings(self) -> dict[str, Enum]:
        return {"storage": self.place, "mode": self.mode, "wire": self.fault, "processors": self.load, "spool": self.spool}
