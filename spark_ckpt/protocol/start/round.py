"""What the parts of a start share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from spark_ckpt.errors import without_way_out
from spark_ckpt.model import CheckpointId, Content, FileHandle
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.start.last_run import LastRun
from spark_ckpt.protocol.start.log_read import LogRead
from spark_ckpt.protocol.start.phases import StartPhase
from spark_ckpt.protocol.start.recovery import Next, Recovery


@dataclass(frozen=True)
class Round:
    """One attempt to claim the stream, as it was found: `last`. After somebody else was faster there is another one, with parts of its own.

    `log`: what was read of it. `notes`: warnings for the driver's log, told when the claim stands.
    """

    request: ev.StartRequested
    settings: Settings
    recovery: Recovery
    log: LogRead
    last: LastRun
    notes: list[str] = field(default_factory=list)

    @property
    def may_run_anew(self) -> bool:
        """Whether the query's sinks may get rows twice in any case."""
        return self.settings.ahead > 0 or self.request.real_time

    def fetch(
        self,
        contents: Iterable[Content | None],
        then: Next,
        damaged: Callable[[str], list[Instruction]],
        path: str | None = None,
    ) -> list[Instruction]:
        """Go on once the large ones among these are on the local disk, or one of them is missing or damaged: for the reason that is given.

        `path`: what a person chose elsewhere, if they belong to that.
        """
        handles = tuple(dict.fromkeys(content for content in contents if isinstance(content, FileHandle)))
        if not handles:
            return then()

        def fetched(event: ev.FilesFetched) -> list[Instruction]:
            return then() if event.damage is None else damaged(event.damage)

        return self.recovery.ask(StartPhase.FETCHING, lambda ticket: do.FetchFiles(ticket, handles, path), fetched)


def named(damaged: Mapping[CheckpointId, str]) -> str:
    """Damaged checkpoints with the causes, where known, to be told to a person."""
    causes = {c: f" ({without_way_out(why)})" if why else "" for c, why in damaged.items()}
    return ", ".join(f"run {c.run} epoch {c.epoch}{cause}" for c, cause in sorted(causes.items()))
