"""What Spark, and a drain, have noted with an epoch's offsets: the configuration in `offsets/N`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol.driver_files import offsets_file

_MAX_VALUES = 2_000_000
_DRAINED = "spark.ckpt.drained"
"""As `Drain.scala` has it."""


def partitions_of(source: Checkpoint) -> int | None:
    """The number of state partitions that Spark recorded with the epoch (`spark.sql.shuffle.partitions`), None where it cannot be told."""
    try:
        return int(_conf_of(source.file(offsets_file(source.id.epoch)))["spark.sql.shuffle.partitions"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def is_drained(source: Checkpoint) -> bool:
    """Whether its epoch was a drain of a query with a watermark: whatever comes after it is late."""
    return is_drain(source.file(offsets_file(source.id.epoch)))


def is_drain(offsets: bytes | None) -> bool:
    """The same of an epoch, by its `offsets/N`."""
    return _DRAINED in _conf_of(offsets)


def drains_again(epoch: int) -> str:
    """What people are told of an epoch that runs again, and of the way out its beginning."""
    return f"epoch {epoch} drains the query again: all rows that come after it count as late, and the query ends; to live on instead"


def _conf_of(offsets: bytes | None) -> Mapping[str, Any]:
    """Of `offsets/N`; empty where it cannot be told."""
    try:
        conf = parse_json((offsets or b"").splitlines()[1], _MAX_VALUES)["conf"]
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return {}
    return conf if isinstance(conf, dict) else {}
