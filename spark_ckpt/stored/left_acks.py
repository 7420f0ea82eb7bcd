"""Acknowledgements in the storage: what an agent whose executor has died leaves there, for the coordinator to find (docs/pipes.md)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import NamedTuple

from spark_ckpt import paths
from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Ack
from spark_ckpt.storage.base import Storage

LARGEST = 64 * 1024 * 1024
"""Bytes of one such object."""
LARGEST_TOGETHER = 2 * LARGEST
"""Bytes of all that are left of one epoch. An agent leaves 10 MB at a time."""
VALUES = 4_000_000
"""Of one such object's JSON: 400,000 files of snapshots, where an agent leaves 50,000 at a time."""


def leave_acks(storage: Storage, run: int, epoch: int, acks: Iterable[Ack]) -> None:
    """Acks of one epoch, so many as are read whole. Raises `StorageError`."""
    document = {"acks": [ack.to_json() for ack in acks]}
    storage.put(paths.left_acks_key(run, epoch, uuid.uuid4().hex), json.dumps(document).encode())


class LeftAcks(NamedTuple):
    """`keys`: of the objects in which the acks are. `unreadable`: what is wrong with the others, none of which counts."""

    acks: tuple[Ack, ...]
    keys: tuple[str, ...]
    unreadable: tuple[str, ...]


def left_acks(storage: Storage, run: int, epoch: int) -> LeftAcks:
    """All that was left of an epoch. Raises `StorageError`."""
    acks: list[Ack] = []
    keys: list[str] = []
    unreadable: list[str] = []
    left = LARGEST_TOGETHER
    for stored in storage.list(paths.left_acks_prefix(run, epoch)):
        left -= stored.size
        if left < 0:
            unreadable.append(
                f"more than {LARGEST_TOGETHER} bytes of acknowledgements are left of epoch {epoch} of run {run}: not all are read"
            )
            break
        try:
            acks += _read(storage, stored.key)
        except DamagedError as error:
            unreadable.append(str(error))
        else:
            keys.append(stored.key)
    return LeftAcks(tuple(acks), tuple(keys), tuple(unreadable))


def _read(storage: Storage, key: str) -> list[Ack]:
    """Raises `DamagedError` for what no agent leaves."""
    data = storage.get(key, limit=LARGEST)
    try:
        return [_checked(Ack.from_json(row)) for row in parse_json(data, VALUES)["acks"] if "decline" not in row]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise DamagedError(f"{storage.url_of(key)} is not a list of acknowledgements") from error
    except DamagedError as error:
        raise DamagedError(f"{storage.url_of(key)} is damaged or forged: {error}") from error


def _checked(ack: Ack) -> Ack:
    """Of one that anybody may have left: what it names and no checkpoint needs is deleted. Raises `DamagedError` for all that no
    checkpoint may hold."""
    # An agent, which leaves acks and reads none, need not load these.
    from spark_ckpt.stored.metadata.columns import check_columns, columns_of
    from spark_ckpt.stored.metadata.limits import LIMITS
    from spark_ckpt.stored.metadata.rows import check_sizes

    columns = columns_of([ack.snapshot])
    check_columns(columns)
    check_sizes(columns, [len(ack.snapshot.handles)], LIMITS)
    return ack
