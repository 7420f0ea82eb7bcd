"""What `commits/N` says: the unique ids of the snapshots that checkpoint N needs (Spark's `CommitLog`, formats v1 to v3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import FormatError

_MAX_VALUES = 10_000_000
"""Of its JSON: a store has one, and a partition."""


class Slot(NamedTuple):
    """Where an id stands in `commits/N`: operator, partition, and the store's place within the partition."""

    operator: int
    partition: int
    place: int


def required_ids(epoch: int, commit: bytes) -> dict[str, Slot]:
    """Unique id -> slot, of every store that took part in the epoch; empty for a stateless query. Raises `FormatError`."""
    version, _, document = commit.partition(b"\n")
    if version.strip() not in (b"v1", b"v2", b"v3"):
        raise FormatError(f"commits/{epoch} has the version {version[:20]!r}; this release reads v1 to v3")
    try:
        doc = parse_json(document, _MAX_VALUES) if document.strip() else {}
        ids = doc.get("stateUniqueIds") or {}
        return _slots(ids)
    except (ValueError, TypeError, AttributeError, RecursionError) as e:
        raise FormatError(f"commits/{epoch} is not what Spark writes ({type(e).__name__}: {e}); the file is damaged") from e


def _slots(ids: Mapping[str, list[list[str]]]) -> dict[str, Slot]:
    slots: dict[str, Slot] = {}
    for key, partitions in ids.items():
        operator = int(key)
        for partition, stores in enumerate(partitions):
            for place, uid in enumerate(stores):
                if not isinstance(uid, str) or not uid:
                    raise ValueError(f"operator {operator}, partition {partition} has the id {uid!r}")
                slots[uid] = Slot(operator, partition, place)
    return slots
