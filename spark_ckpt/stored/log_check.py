"""Would a start find in the log what it reads there? Looked at from outside, by the protocol's own rules (`recorded.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Checkpoint
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.entries import Entry
from spark_ckpt.protocol.recorded import check_unbroken, does_not_follow, reach, recorded
from spark_ckpt.protocol.start_plans import MOST_READ
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Overview, Standing

_READERS = 8
"""Log entries that are read at a time."""
_ROUNDS = 3
"""How often a stream that moves on is looked at."""


def log_problem(storage: Storage, reader: StreamReader, standing: Standing, newest: Checkpoint | None) -> str | None:
    """Why a start that goes on from `newest` would be refused for what the log lacks, in words; None: it has all. Raises `StorageError`."""
    for _ in range(_ROUNDS):
        problem = _problem(storage, reader, standing, newest)
        now = reader.standing(standing.tail)
        if problem is None or now == standing or now is None:
            break
        # A running stream may have deleted what nobody needs any more.
        standing, newest = now, Overview.of(reader.read_all(), now).newest
    return problem


def _problem(storage: Storage, reader: StreamReader, standing: Standing, newest: Checkpoint | None) -> str | None:
    if standing.ended or (newest is None and standing.claim.origin is not None):
        return None  # where no checkpoint can be read, that is told of each
    if newest is not None and newest.id.run == standing.claim.run and newest.log > standing.tail:
        its_plan = f"the plan of {checkpoint_name(newest.id)}"
        return f"the log of {reader.url} ends with entry {standing.tail}, before {its_plan}; put the later ones back"
    try:
        its_claim = _read(storage, [newest.claim] if newest else (), standing.tail, strict=False)
        within = reach(newest, standing.claim, its_claim.get(newest.claim) if newest else None)
        if standing.tail - within.after > MOST_READ:
            return f"a start would be refused: entry {standing.tail} of {reader.url} is forged or was put there by mistake; remove it"
        entries = _read(storage, within.numbers(newest, standing.tail), standing.tail)
        found = recorded(entries, newest, standing.tail, standing.claim, within)
        check_unbroken(found, newest.id if newest else None)
    except DamagedError as error:
        return f"a start would be refused: {error}"
    used = standing.claim.used if standing.claim.used is not None else -1
    why = does_not_follow(found, newest.id, used) if newest is not None and not standing.claim.ahead else None
    if why is not None:
        return f"a start would be refused: {why}"
    for key in sorted({key for plan in found.plans for key in plan.objects}):
        if storage.size(key) is None:
            return f"a start would be refused: {reader.url}/{key} is missing, which the plan of an epoch names that runs again; put it back"
    return None


def _read(storage: Storage, numbers: Iterable[int], tail: int, strict: bool = True) -> Mapping[int, Entry]:
    log = StreamLog(storage)
    wanted = [number for number in numbers if 0 < number <= tail]

    def one(number: int) -> Entry | None:
        return log.entry(number) if strict or log.holds(number) else None

    with ThreadPoolExecutor(_READERS, thread_name_prefix="log") as pool:
        found = zip(wanted, pool.map(one, wanted), strict=True)
        return {number: entry for number, entry in found if entry is not None}
