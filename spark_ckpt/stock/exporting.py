"""What of a stream goes to stock Spark: a checkpoint, and of the epochs planned past it the one that stock Spark can run again.

Stock Spark runs at most one epoch again, the newest one in `offsets/`. Sinks skip batch ids that they have seen, so each id must have the
same rows as before; where that cannot be, nothing is exported, and a savepoint that ends the query is the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_ckpt.errors import ConflictError, DamagedError, ObjectMissingError
from spark_ckpt.model import Checkpoint, CheckpointId, Content
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.progress import Tell, nobody
from spark_ckpt.protocol.driver_files import beside_state, offsets_file
from spark_ckpt.protocol.entries import Plan
from spark_ckpt.protocol.offsets_conf import is_drain, is_drained
from spark_ckpt.protocol.start.planned_before import begun_by_stock, does_not_follow
from spark_ckpt.protocol.start.restoring import incomplete
from spark_ckpt.state.reading import conf_of
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.planned import planned_past
from spark_ckpt.stored.preflight import without_objects
from spark_ckpt.stored.reading import CheckpointReader, StreamReader
from spark_ckpt.stored.standing import Use

_WAY_OUT = (
    "start the query once more with the plugin, end it with `spark-ckpt savepoint {stream} --stop`, and export that savepoint"
)


@dataclass(frozen=True)
class Exported:
    """`planned`: the epoch past the checkpoint that stock Spark runs first, as it was planned; None: what comes next is new.

    `source`: URL of the checkpoint's or savepoint's folder.
    """

    source: str
    checkpoint: Checkpoint
    planned: Plan | None

    @property
    def next_epoch(self) -> int:
        return self.checkpoint.id.epoch + 1

    @property
    def codec(self) -> str:
        """With which changelogs are compressed. Raises `DamagedError`."""
        return conf_of(self.checkpoint).get("spark.sql.streaming.stateStore.compression.codec", "lz4")

    @property
    def files(self) -> Mapping[str, Content]:
        """The driver's: those of the checkpoint, and what was written for the epoch that runs again."""
        files = dict(self.checkpoint.files)
        if self.planned is not None:
            for path, content in beside_state(self.planned.files).items():
                if content is None:
                    files.pop(path, None)
                else:
                    files[path] = content
            files[offsets_file(self.planned.epoch)] = self.planned.offsets
        return files


def to_export(
    storage: Storage, reader: StreamReader, wanted: CheckpointId | None, tell: Tell = nobody, what: str = "exported"
) -> Exported:
    """`wanted`: None for the one that a start would go on from, or the only one of a `CheckpointReader`. All that can be refused is.
    `what`: what a person wants to have done to it, in messages.

    Raises `ConflictError` where stock Spark could not go on exactly once, `DamagedError` and `ObjectMissingError` for what the checkpoint
    lacks, `StorageError`.
    """
    checkpoint = reader.read(wanted or reader.latest())
    lacking = [*incomplete(checkpoint), *without_objects(checkpoint, storage, tell)]
    source = reader.path_of(checkpoint.id)
    if lacking:
        raise DamagedError(f"{source} cannot be {what}: {lacking[0]}; choose another checkpoint, `spark-ckpt list` shows what there is")
    if checkpoint.begins:
        raise ConflictError(
            f"{source} cannot be {what}: the query has changed, and in the epoch after it operator {checkpoint.begins[0]} begins empty, "
            "which stock Spark cannot do; let the query run that epoch with the plugin, and take a later checkpoint"
        )
    if isinstance(reader, CheckpointReader) and RestorePath.at(source).is_savepoint:
        planned = next(iter(begun_by_stock(checkpoint)), None)
    else:
        planned = _planned(storage, checkpoint)
    if is_drained(checkpoint) or (planned is not None and is_drain(planned.offsets)):
        raise ConflictError(
            f"{source} cannot be {what}: the query was drained, so that all later rows count as late, and stock Spark would drop them "
            "without a word; take a savepoint from before the drain, or go back to a checkpoint from before it with the plugin, and end "
            "the query with a savepoint"
        )
    return Exported(source, checkpoint, planned)


def _planned(storage: Storage, checkpoint: Checkpoint) -> Plan | None:
    """The one epoch that was planned past a checkpoint of the stream at `storage`."""
    reader = StreamReader(storage)
    name, way_out = checkpoint_name(checkpoint.id), _WAY_OUT.format(stream=reader.url)
    standing = reader.standing()
    if standing is None:
        raise ObjectMissingError(
            f"the log of {reader.url} is gone, so it is not known what ran past {name}; put its log/ back, or export a savepoint"
        )
    use = standing.use(checkpoint.id)
    if use is not Use.USABLE:
        raise ConflictError(
            f"{name} of {reader.url} is {use.value} in `spark-ckpt list`: the stream does not go back to it; choose another one"
        )
    claim = standing.claim
    if claim.ahead:
        raise ConflictError(
            f"{reader.url} runs in AT_LEAST_ONCE or in real time, where epochs past {name} may have run without a plan, and stock Spark "
            f"would give their numbers to other rows; {way_out}"
        )
    planned = planned_past(storage, reader, standing, checkpoint)
    found = planned.planned_before
    unknown = f"in the log of {reader.url}, so it is not known what ran past {name}; put it back, or export a savepoint"
    if planned.gaps:
        raise DamagedError(f"entry {planned.gaps[0]} is missing {unknown}")
    if planned.past_all is not None:
        raise DamagedError(f"the plan of {checkpoint_name(planned.past_all)} is missing {unknown}")
    if found.missing is not None:
        raise DamagedError(f"the plan of epoch {found.missing} is missing {unknown}")
    why = does_not_follow(found, checkpoint.id, claim.used if claim.used is not None else -1)
    if why is None and found.first != checkpoint.id.epoch + 1:
        why = f"the epoch after {name} has the number {found.first}, and stock Spark goes on with {checkpoint.id.epoch + 1}"
    if why is None and len(found.plans) > 1:
        why = f"{len(found.plans)} epochs were planned past {name}, and stock Spark runs one again at most"
    if why is not None:
        raise ConflictError(f"{reader.url} cannot be exported exactly once: {why}; {way_out}")
    return found.plans[0] if found.plans else None
