"""Deleting checkpoints and what only they name (which those are: protocol/retention/deletion.py, protocol/retention/garbage.py)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ckpt.storage.base import Storage


def delete_checkpoints(storage: Storage, metadata: Iterable[str], objects: Iterable[str]) -> None:
    """Rule: `_metadata` first, for a checkpoint that exists has its objects; what is left of a deletion that is cut short is garbage.

    `metadata`, `objects`: keys. Raises `StorageError`.
    """
    storage.delete(metadata)
    storage.delete(objects)
