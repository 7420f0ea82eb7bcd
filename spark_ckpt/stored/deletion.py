"""Deleting checkpoints and what only they name (which those are: protocol/retention/deletion.py, protocol/retention/garbage.py)."""

from __future__ import annotations

from collections.abc import Collection

from spark_ckpt.progress import Task, Tell, nobody
from spark_ckpt.storage.base import Storage


def delete_checkpoints(storage: Storage, metadata: Collection[str], objects: Collection[str], tell: Tell = nobody) -> None:
    """Rule: `_metadata` first, for a checkpoint that exists has its objects; what is left of a deletion that is cut short is garbage.

    `metadata`, `objects`: keys. Raises `StorageError`.
    """
    task = Task(tell, "deleting objects", len(metadata) + len(objects))
    storage.delete(task.each(metadata))
    storage.delete(task.each(objects))
