"""Acknowledgements in the storage: what an agent whose executor has died leaves there, for the coordinator to find (docs/pipes.md)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

from spark_ckpt import paths
from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.model import Ack
from spark_ckpt.storage.base import Storage

LARGEST = 64 * 1024 * 1024
"""Bytes of one such object."""


def leave_acks(storage: Storage, run: int, epoch: int, acks: Iterable[Ack]) -> None:
    """Acks of one epoch, so many as are read whole. Raises `StorageError`."""
    document = {"acks": [ack.to_json() for ack in acks]}
    storage.put(paths.left_acks_key(run, epoch, uuid.uuid4().hex), json.dumps(document).encode())


def left_acks(storage: Storage, run: int, epoch: int) -> tuple[tuple[Ack, ...], tuple[str, ...]]:
    """All that was left of an epoch, and the keys. Raises `DamagedError`, `FormatError` for what no agent leaves, `StorageError`."""
    acks: list[Ack] = []
    keys: list[str] = []
    for stored in storage.list(paths.left_acks_prefix(run, epoch)):
        keys.append(stored.key)
        data = storage.get(stored.key, limit=LARGEST)
        try:
            acks += [_checked(Ack.from_json(row)) for row in json.loads(data)["acks"] if "decline" not in row]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise DamagedError(f"{storage.url_of(stored.key)} is not a list of acknowledgements") from error
    return tuple(acks), tuple(keys)


def _checked(ack: Ack) -> Ack:
    """Of one that anybody may have left: what it names and no checkpoint needs is deleted. Raises `FormatError` for all that no
    checkpoint may hold."""
    # An agent, which leaves acks and reads none, need not load these.
    from spark_ckpt.stored.metadata.columns import check_columns, columns_of
    from spark_ckpt.stored.metadata.limits import LIMITS
    from spark_ckpt.stored.metadata.rows import check_sizes

    columns = columns_of([ack.snapshot])
    try:
        check_columns(columns)
        check_sizes(columns, [len(ack.snapshot.handles)], LIMITS)
    except DamagedError as error:
        raise FormatError(f"an acknowledgement that was left in the storage is damaged or forged: {error}") from error
    return ack
