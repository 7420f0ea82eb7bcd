"""`verify` and `restore --check` look at a stream from outside: they must say of its log what a real start then does."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.errors import CheckpointError, DamagedError, ObjectMissingError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import LOG_PREFIX, METADATA_NAME, log_key, parse_driver_file_key
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.large_files import LARGE
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.stream import Stream
from spark_ckpt.storage import PutResult, Storage, open_storage
from spark_ckpt.storage.base import Stored
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.stored.copies import RestorePath, store_savepoint
from spark_ckpt.stored.log_check import log_problem
from spark_ckpt.stored.preflight import into
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.verify import Verifier
from tests.drivers.protocol_driving import JOB, commit, offsets

Damage = Sequence[tuple[str, bytes | None]]
"""Keys and what lies there then; None: nothing."""
BACKGROUND = Settings(interval_ms=1_000_000)
SHORT = Settings(retained=1, trim_every=1)
AHEAD = Settings(interval_ms=1_000_000, ahead=2)


class FourADay(MemoryStorage):
    """Between two of its put-if-absents lie six hours by its clock."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._times: dict[str, int] = {}

    def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
        result, _ = super().put_if_absent_dated(key, data)
        if result is PutResult.EXISTS:
            return result, None
        self._times[key] = len(self._times) * DAY_MS // 4
        return result, self._times[key]

    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        for stored in super().list(prefix, start_after):
            yield replace(stored, modified_ms=self._times.get(stored.key, stored.modified_ms))


class Query:
    """A start of a query without state over a real storage, and the epochs that it runs. `folder`: for large files."""

    folder: ClassVar[Path]

    def __init__(self, storage: Storage, restore: ev.Restore | None = None, settings: Settings | None = None) -> None:
        self._stream = Stream(settings or Settings())
        self._actions = StorageActions(storage.url, lambda url: storage if url == storage.url else open_storage(url))
        self._actions.transfer.begin(str(self.folder))
        self._running = False
        self.refused: str | None = None
        self._push(ev.StartRequested("q", JOB, (), uuid.uuid4().hex, "host", restore=restore))

    def _push(self, event: ev.Event) -> None:
        events = [event]
        while events:
            for i in self._stream.handle(events.pop(0), int(time.time() * 1000)):
                if isinstance(i, do.Refused):
                    self.refused = i.message
                elif isinstance(i, do.Started):
                    self._running = bool(i.planned)
                elif isinstance(i, (do.Delete, do.Trimming, do.Question)):
                    events.append(self._actions.perform(i))

    def epochs(self, *numbers: int) -> Query:
        for epoch in numbers:
            self.plans(epoch)
            self._push(ev.SealRequested(epoch, commit([])))
            assert self.refused is None
        return self

    def plans(self, epoch: int, files: ev.Changes | None = None) -> Query:
        """It dies in the middle of this one. The first that runs again is not planned anew."""
        if not self._running:
            self._push(ev.TriggerRequested(epoch, offsets(epoch), files or {}))
        self._running = False
        assert self.refused is None
        return self

    def deleted(self) -> None:
        """By a person, who stops the query (`onStop=DELETE`)."""
        self._push(ev.StopRequested(False, True))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> None:
    Query.folder = tmp_path


def back_to(path: str, own: CheckpointId | None = None, discard: bool = False) -> ev.Restore:
    return ev.Restore(path, own, discard=discard)


def own(storage: Storage, epoch: int, run: int = 1, discard: bool = False) -> ev.Restore:
    at = CheckpointId(run, epoch)
    return back_to(StreamReader(storage).path_of(at), at, discard)


def saved(storage: Storage, epoch: int, run: int = 1) -> str:
    """URL of a savepoint of that checkpoint, in the stream's folder."""
    url = f"{storage.url}/savepoints/of-{run}-{epoch}"
    with open_storage(url) as target:
        store_savepoint(storage, StreamReader(storage).read(CheckpointId(run, epoch)), target)
    return url


def killed_in_an_epoch(storage: Storage) -> None:
    Query(storage).epochs(0, 1, 2).plans(3)


def killed_again_and_again(storage: Storage) -> None:
    Query(storage).epochs(0, 1).plans(2)
    Query(storage)
    Query(storage)


def several_runs(storage: Storage) -> None:
    Query(storage).epochs(0, 1).plans(2)
    Query(storage).epochs(2, 3).plans(4)


def adopted_in_part(storage: Storage) -> None:
    """Run 3 has checkpoints between the plans that it adopted, and run 4 goes on from the newest of them."""
    Query(storage).epochs(0)
    Query(storage, settings=BACKGROUND).epochs(1, 2, 3)
    Query(storage).epochs(1, 2)
    Query(storage)


def gone_back(storage: Storage) -> None:
    Query(storage).epochs(0, 1, 2, 3)
    Query(storage, own(storage, 1))


def gone_back_and_on(storage: Storage) -> None:
    Query(storage).epochs(0, 1, 2, 3)
    Query(storage, own(storage, 1)).epochs(2, 3).plans(4)


def gone_back_under_new_numbers(storage: Storage) -> None:
    Query(storage).epochs(0, 1, 2, 3)
    Query(storage, own(storage, 1, discard=True)).epochs(4).plans(5)


def in_the_background(storage: Storage) -> None:
    Query(storage).epochs(0, 1)
    Query(storage, settings=BACKGROUND).epochs(2, 3).plans(4)
    Query(storage, settings=BACKGROUND).epochs(2).plans(3)


def ahead_of_its_plans(storage: Storage) -> None:
    Query(storage).epochs(0, 1)
    Query(storage, settings=AHEAD).epochs(2, 3)
    Query(storage, settings=AHEAD)


def from_a_savepoint(storage: Storage) -> None:
    Query(storage).epochs(0, 1)
    url = saved(storage, 1)
    Query(storage).epochs(2, 3)
    Query(storage, back_to(url)).epochs(2)


def savepoints(storage: Storage) -> None:
    Query(storage).epochs(0, 1)
    saved(storage, 1)
    Query(storage).epochs(2).plans(3)
    saved(storage, 2, 2)


def planned_with_a_large_file(storage: Storage) -> None:
    Query(storage).epochs(0, 1).plans(2, {"sources/0/2": b"x" * (LARGE + 1)})


def with_a_short_log(storage: Storage) -> None:
    """Entries below its floor are gone, but for the claim, entry 3."""
    slow = FourADay(storage.url)
    Query(slow).epochs(0)
    saved(storage, 0)
    Query(slow, settings=SHORT).epochs(*range(1, 12)).plans(12)
    assert storage.size(log_key(4)) is None


def deleted(storage: Storage) -> None:
    query = Query(storage).epochs(0, 1)
    saved(storage, 1)
    query.plans(2).deleted()


def deleted_and_begun_anew(storage: Storage) -> None:
    deleted(storage)
    Query(storage).epochs(3).plans(4)


def deleted_and_restored(storage: Storage) -> None:
    deleted(storage)
    Query(storage, back_to(f"{storage.url}/savepoints/of-1-1")).epochs(2).plans(3)


SHAPES: list[Callable[[Storage], None]] = [
    killed_in_an_epoch,
    killed_again_and_again,
    several_runs,
    adopted_in_part,
    gone_back,
    gone_back_and_on,
    gone_back_under_new_numbers,
    in_the_background,
    ahead_of_its_plans,
    from_a_savepoint,
    savepoints,
    planned_with_a_large_file,
    with_a_short_log,
    deleted,
    deleted_and_begun_anew,
    deleted_and_restored,
]


@contextmanager
def written(shape: Callable[[Storage], None]) -> Iterator[Storage]:
    name = str(uuid.uuid4())
    with open_storage(f"memory://{name}/stream") as storage:
        shape(storage)
        yield storage
    wipe(name)


@contextmanager
def copied(storage: Storage, damage: Damage = ()) -> Iterator[Storage]:
    name, changed = str(uuid.uuid4()), dict(damage)
    with open_storage(f"memory://{name}/stream") as target:
        for stored in storage.list(""):
            data = changed[stored.key] if stored.key in changed else storage.get(stored.key)
            if data is not None:
                target.put(stored.key, data)
        yield target
    wipe(name)


def damages(storage: Storage) -> Iterator[Damage]:
    """Nothing; what is missing: one or two entries of the log, a `_metadata`, also with any one entry, a large file; one of all that cannot
    be read."""
    entries = [stored.key for stored in storage.list(LOG_PREFIX)]
    checkpoints = [stored.key for stored in storage.list("run-") if stored.key.endswith(METADATA_NAME)]
    files = [stored.key for stored in storage.list("run-") if parse_driver_file_key(stored.key) is not None]
    missing = [(key,) for key in (*entries, *checkpoints, *files)]
    for keys in ((), *missing, *itertools.combinations(entries, 2), *itertools.product(checkpoints, entries)):
        yield tuple((key, None) for key in keys)
    yield from (((key, b"{"),) for key in (*entries, *checkpoints, *files))


def changes(storage: Storage) -> Iterator[Damage]:
    """A large file that has another byte, which only its checksum tells."""
    for stored in storage.list("run-"):
        if parse_driver_file_key(stored.key) is not None:
            yield ((stored.key, b"y" + storage.get(stored.key)[1:]),)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_verify_says_of_the_log_what_a_start_does(shape: Callable[[Storage], None]) -> None:
    wrong = []
    with written(shape) as storage:
        for damage in (*damages(storage), *changes(storage)):
            with copied(storage, damage) as stream:
                reader = StreamReader(stream)
                overview = reader.overview()
                if not overview.looked_at:
                    continue  # the verb says that there is nothing to verify
                standing = overview.standing
                said = overview.problem if standing is None else log_problem(stream, reader, standing, overview.newest)
                contents = [item.checkpoint for item in overview.looked_at]
                whole = all(c is not None and not Verifier(stream).verify(c).problems for c in contents)  # the verb tells of each
                refused = Query(stream).refused
            if said is not None if refused is None else said is None and whole:
                wrong.append((damage, said, refused))
    assert wrong == []


def restorable(storage: Storage) -> Iterator[tuple[RestorePath, Checkpoint]]:
    """Checkpoints and savepoints that can be read."""
    for folder in (*storage.list_folders("run-"), "savepoints/"):
        for inner in storage.list_folders(folder):
            chosen = RestorePath.at(f"{storage.url}/{inner.rstrip('/')}")
            with open_storage(chosen.storage_url) as root, suppress(DamagedError, ObjectMissingError):
                yield chosen, chosen.read(root)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_restore_check_says_what_a_start_does(shape: Callable[[Storage], None]) -> None:
    wrong = []
    with written(shape) as storage:
        for damage in damages(storage):
            with copied(storage, damage) as stream:
                for chosen, content in restorable(stream):
                    try:
                        problems = into(content, chosen, stream).problems
                    except CheckpointError as error:
                        problems = (str(error),)
                    with copied(stream) as other:
                        path = chosen.url.replace(stream.url, other.url)
                        refused = Query(other, back_to(path, chosen.checkpoint)).refused
                    if bool(problems) != (refused is not None):
                        wrong.append((damage, chosen.url, problems, refused))
    assert wrong == []
