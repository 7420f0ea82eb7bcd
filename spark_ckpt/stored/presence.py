"""Whether the objects that a checkpoint names are there, in their length. Nothing is read of them (`stored/verify.py` does that)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol.entries import Plan
from spark_ckpt.storage.base import Storage

_HEADS = 8
"""Objects looked at in parallel."""


def absent(storage: Storage, checkpoint: Checkpoint) -> Iterator[str]:
    """Each object that is missing or too short, in words. `storage` is what its objects are relative to. Raises `StorageError`."""
    needed: dict[str, int] = {}
    for handle in checkpoint.handles:
        needed[handle.object] = max(needed.get(handle.object, 0), handle.offset + handle.length)
    if not needed:
        return
    root = storage.url.rstrip("/")
    with ThreadPoolExecutor(_HEADS, thread_name_prefix="presence") as pool:
        for (name, length), size in zip(needed.items(), pool.map(storage.size, needed), strict=True):
            if size is None:
                yield f"{root}/{name} is missing"
            elif size < length:
                yield f"{root}/{name} has {size} bytes of {length}"


def without_file(storage: Storage, plans: Iterable[Plan]) -> str | None:
    """A large file of the driver that one of these plans names, and that is missing. Raises `StorageError`."""
    return next((key for key in sorted({key for plan in plans for key in plan.objects}) if storage.size(key) is None), None)
