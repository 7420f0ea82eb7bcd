"""Whether the objects that handles name are there, in their length. Nothing is read of them (`stored/verify.py` does that)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice

from spark_ckpt.model import Handle
from spark_ckpt.paths import check_object
from spark_ckpt.progress import Task, Tell, nobody
from spark_ckpt.storage.base import PAGE, Storage

_HEADS = 8
"""Objects looked at in parallel."""


def sizes(storage: Storage, names: Iterable[str], tell: Tell = nobody) -> Iterator[tuple[str, int | None]]:
    """Of objects, each once: in bytes, None where there is none. Raises `FormatError` for the name of no such object, `StorageError`."""
    wanted = [check_object(name) for name in dict.fromkeys(names)]
    if wanted:
        with ThreadPoolExecutor(_HEADS, thread_name_prefix="presence") as pool:
            task = Task(tell, "looking for objects", len(wanted))
            listed = _listed(storage, wanted, pool)
            found = pool.map(lambda name: listed[name] if name in listed else storage.size(name), wanted)
            yield from task.each(zip(wanted, found, strict=True))


def _listed(storage: Storage, wanted: Sequence[str], pool: ThreadPoolExecutor) -> dict[str, int]:
    """Those that a few LISTs tell, in fewer requests than one for each: of no folder more pages than that, whatever else lies there."""
    folders = [list(names) for _, names in groupby(sorted(wanted), key=lambda name: name.rpartition("/")[0])]

    def of_folder(names: list[str]) -> dict[str, int]:
        folder, most = names[0].rpartition("/")[0] + "/", len(names) // _HEADS * PAGE
        wanted = frozenset(names)
        return {found.key: found.size for found in islice(storage.list(folder), most) if found.key in wanted} if most else {}

    return {name: size for found in pool.map(of_folder, folders) for name, size in found.items()}


def absent(storage: Storage, handles: Iterable[Handle], tell: Tell = nobody) -> Iterator[str]:
    """Each object that is missing or too short, in words. `storage` is what they are relative to. Raises `StorageError`."""
    needed: dict[str, int] = {}
    for handle in handles:
        needed[handle.object] = max(needed.get(handle.object, 0), handle.offset + handle.length)
    for name, size in sizes(storage, needed, tell):
        if size is None:
            yield f"{storage.url_of(name)} is missing"
        elif size < needed[name]:
            yield f"{storage.url_of(name)} has {size} bytes of {needed[name]}"
