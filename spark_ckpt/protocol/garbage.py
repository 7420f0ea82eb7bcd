"""What `gc` may delete: leftovers of superseded runs. Pure: the caller reads the last claim, then lists."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import METADATA_NAME, parse_checkpoint_prefix, parse_run_prefix
from spark_ckpt.protocol.deletion import Batch
from spark_ckpt.protocol.entries import Claim


def kept_checkpoints(claim: Claim) -> frozenset[CheckpointId]:
    """Checkpoints of older runs that the last claim's run goes on from or owns."""
    return frozenset([*claim.inherits, *([claim.origin] if claim.origin else [])])


def is_over(run: int, claim: Claim, ended: bool) -> bool:
    """Whether nothing below this run's prefix is deleted by itself any more: it was superseded, or its stream was deleted."""
    return run < claim.run or (ended and run == claim.run)


def garbage(claim: Claim, checkpoints: Iterable[Checkpoint], keys: Iterable[str], ended: bool = False) -> Batch:
    """Everything under runs older than the last claim's that no checkpoint names, and the checkpoints nobody inherits.

    The order of reading matters, because runs go on meanwhile: (1) the last claim; (2) `_metadata` of its `kept_checkpoints`; (3) those
    of its own run, listed and read, again if one of the listed is gone when it is read; (4) whether the claim is still the last, else
    begin again; (5) the keys. What (2) and (3) found are `checkpoints`: a later claim inherits from these and no others. With (3) before
    (2), or without (4), what is kept may be superseded and deleted between two reads, and what its successors still share with it would
    be named by nothing. Objects under the claim's own run are never garbage here: its run deletes its own. But of a stream that was
    deleted (`ended`) everything is, and `checkpoints` are none: what its last run had not heard of, or had no time to delete.
    """
    named = frozenset().union(*(c.objects for c in checkpoints))
    kept = frozenset() if ended else kept_checkpoints(claim)
    superfluous: list[CheckpointId] = []
    objects: list[str] = []
    for key in keys:
        run = parse_run_prefix(key.split("/", 1)[0])
        if run is None or not is_over(run, claim, ended):
            continue
        folder, _, name = key.rpartition("/")
        found = parse_checkpoint_prefix(folder) if name == METADATA_NAME else None
        if found is not None:
            if found not in kept:
                superfluous.append(found)
        elif key not in named:
            objects.append(key)
    return Batch(tuple(sorted(superfluous)), tuple(sorted(objects)))
