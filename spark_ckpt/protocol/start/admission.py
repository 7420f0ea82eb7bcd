"""Whether a query may go on with the stream that it finds."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spark_ckpt.errors import ErrorKind, printable
from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.start.last_run import LastRun
from spark_ckpt.protocol.start.recovery import GivenUpError, fenced_message
from spark_ckpt.protocol.start.sources import same_sources

_TRANSFORM, _NEW_TRANSFORM = "TransformWithStateIn", (4, 2)
"""transformWithState in Python: its name in a job begins so (`JobShapes`), and from that Spark on older ones do not read its state."""
_NAMED, _SHOWN = 16, 100
"""Of a query's hooks, and letters of a name: as many as there can be. What lies in a storage may be forged."""


class Admission:
    """Raises `GivenUpError` where it may not, with the sentence for the user."""

    def __init__(self, request: ev.StartRequested) -> None:
        self._request = request

    def admit(self, last: LastRun) -> list[Instruction]:
        """What is to be told on the way in."""
        if last.claim is None:
            self._begin_stream()
            return []
        told = self._compare(last.claim) if last.end is None else []
        if not self.is_its_own(last.claim):
            raise GivenUpError(ErrorKind.FENCED, fenced_message(None, last.claim.claim, last.claim))
        return [*told, *(self._older_spark(last.claim) if last.end is None else [])]

    def _older_spark(self, claim: Claim) -> list[Instruction]:
        """Rule: an older Spark does not go on from what it is known not to read (`tests/spark/test_upgrade.py`); else it is told what it
        goes on from. Not where a person goes back to a checkpoint that an older one may have made."""
        request, restored = self._request, claim.restored.path if claim.restored is not None else None
        chosen = request.restore is not None and request.restore.path != restored
        theirs, mine = (versions.get("spark", "") for versions in (claim.versions, request.versions))
        if chosen or _line(mine) >= _line(theirs) or not _line(mine):
            return []
        said = f"the stream was last run by Spark {printable(theirs[:_SHOWN])}, and this is Spark {mine}"
        if _line(mine) < _NEW_TRANSFORM <= _line(theirs) and any(name.startswith(_TRANSFORM) for name in request.job.operators):
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"{said}, which does not read the state of Python's transformWithState of Spark 4.2 and newer; start the query with such a "
                "Spark, or go back with spark.ckpt.restore.path to a checkpoint or savepoint that the older one has made, "
                "or begin with that in a new checkpointLocation",
            )
        return [do.Log(do.Level.WARN, f"{said}: Spark promises nothing of state that a newer one has written")]

    def admit_hooks(self, origin: Checkpoint | None) -> None:
        """Rule: the state of a hook is not lost because nobody takes it (Flink: without `allowNonRestoredState`)."""
        stranded = sorted(set(origin.hooks if origin else ()) - set(self._request.hooks))
        if origin is not None and stranded:
            names = ", ".join(f"'{printable(name[:_SHOWN])}'" for name in stranded[:_NAMED]) + (", …" if len(stranded) > _NAMED else "")
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the checkpoint of epoch {origin.id.epoch} of run {origin.id.run} holds the state of hooks that this query does not have "
                f"({names}); register a hook of that name before the query starts (if its state is not needed any more, one whose snapshot "
                "returns None, until a checkpoint is complete)",
            )

    def _another_job(self, what: str, mine: Iterable[str], theirs: Iterable[str]) -> GivenUpError:
        return GivenUpError(
            ErrorKind.CONFLICT,
            f"another job uses this checkpointLocation: its {what} are {_names(theirs)}, those of this one {_names(mine)}; "
            "give this query a checkpointLocation of its own, or start the job as it was",
        )

    def is_its_own(self, claim: Claim) -> bool:
        """Rule: a query goes back in place only while the stream is its own, or it would take it back from its successor."""
        return not self._request.again or claim.spark_run_id == self._request.spark_run_id

    def _begin_stream(self) -> None:
        local = sorted(p for p in self._request.local if p.startswith(("offsets/", "commits/")))
        if local:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                "the checkpointLocation holds a checkpoint that Spark wrote without spark-ckpt, or under another path or "
                f"spark.ckpt.storage (for example {local[-1]}): the storage knows nothing of a stream of this path; if the folder has two "
                "paths, by a symbolic link, or the storage was another one, start the query with what it had before, and it goes on; else "
                "give it a new checkpointLocation: `spark-ckpt import` takes the state of this one along",
            )

    def _compare(self, claim: Claim) -> list[Instruction]:
        job, other = self._request.job, claim.job
        if claim.query_id != self._request.query_id:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the stream belongs to query {claim.query_id} and this is query {self._request.query_id}; give this query a "
                "checkpointLocation of its own",
            )
        if self._request.compared and self._request.planned is None and job.operators != other.operators:
            raise self._another_job("stateful operators", job.operators, other.operators)
        if not same_sources(other.sources, job.sources):
            raise self._another_job("sources", job.sources, other.sources)
        if job.sink != other.sink:
            return [
                do.Log(
                    do.Level.WARN, f"the sink was {other.sink} and is {job.sink} now; batches that the old one holds are not written again"
                )
            ]
        return []


def _line(version: str) -> tuple[int, ...]:
    """(4, 2) of "4.2.1"; () where it is none."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", version, re.ASCII)
    return tuple(map(int, found.groups())) if found else ()


def _names(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"
