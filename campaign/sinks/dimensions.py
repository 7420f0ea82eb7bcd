"""What the cases of sinks differ in. The values are what results and docs/guarantees.md call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from campaign.dimensions import Mode


class SinkKind(Enum):
    """What a stream writes to. The first three can be read without a broker."""

    FILE = "file"
    SKIPS = "skips"
    APPENDS = "appends"
    """A foreachBatch that keeps all that it is given."""
    KAFKA = "kafka"
    NUMBERED = "numbered"
    """Kafka, with numbers by which its reader drops what came twice (examples/kafka_numbered.py)."""


ON_KAFKA = (SinkKind.KAFKA, SinkKind.NUMBERED)
IDEMPOTENT = (SinkKind.FILE, SinkKind.SKIPS, SinkKind.NUMBERED)
"""No row comes twice, where an epoch that runs again has its old number."""


class Strike(Enum):
    """What is killed; always while every sink has taken epochs that no checkpoint holds, but for WRITING."""

    AGENT = "agent"
    COORDINATOR = "coordinator"
    DRIVER = "driver"
    MACHINE = "machine"
    """The driver and all that it started, with their disk."""
    EXECUTORS = "executors"
    """All of them with their agents, before these have uploaded anything."""
    WRITING = "executors, writing"
    """All of them, while rows go to Kafka."""


class Group(Enum):
    """What the streams of one case have to go through."""

    DRIVER = "driver"
    EXECUTORS = "executors"
    HELPERS = "helpers"


STRIKES: Mapping[Group, Sequence[Strike]] = {
    Group.DRIVER: (Strike.DRIVER, Strike.MACHINE),
    Group.EXECUTORS: (Strike.WRITING, Strike.EXECUTORS),
    Group.HELPERS: (Strike.AGENT, Strike.COORDINATOR),
}


@dataclass(frozen=True)
class SinkCase:
    """An application with a stream for each kind of sink, started as often as it takes."""

    mode: Mode
    group: Group

    @property
    def name(self) -> str:
        return f"{self.mode.value}, {self.group.value}"


def cases() -> list[SinkCase]:
    return [SinkCase(mode, group) for group in Group for mode in Mode]


def forbidden_twice(mode: Mode, sink: SinkKind) -> bool:
    return mode is not Mode.AT_LEAST_ONCE and sink in IDEMPOTENT
