"""Garbage of runs: finding them in a storage, and deleting them, while runs go on (rules: protocol/retention/garbage.py).

Safe beside a running stream, because of the order of the reads, which `garbage` explains, and because of the run that lives only that is
taken which a checkpoint of its own has passed over, and which was stored long before that one began (`garbage_of_living`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from spark_ckpt import paths
from spark_ckpt.errors import ConflictError, DamagedError, FormatError, ObjectMissingError, StorageSetupError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.progress import Task, Tell, nobody
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.retention.garbage import (
    Settled,
    entry_before_barrier,
    garbage,
    garbage_of_living,
    is_bare,
    is_over,
    kept_checkpoints,
    planned_objects,
    settled,
    vanished,
)
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.storage.base import PutResult, Storage, Stored
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.stored.deletion import delete_checkpoints
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.metadata.reading import GIVEN_UP, read_metadata
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Standing

ROUNDS = 20
"""How often a stream may have moved on while it was read, before that is given up."""


@dataclass(frozen=True)
class Amount:
    """Objects, and the bytes in them."""

    objects: int = 0
    bytes: int = 0

    @staticmethod
    def of(stored: Iterable[Stored]) -> Amount:
        sizes = [s.size for s in stored]
        return Amount(len(sizes), sum(sizes))


@dataclass(frozen=True)
class RunGarbage:
    """One run: what may go, what is too young to, and what checkpoints refer to. Of the one that lives nobody knows of what is young
    whether it will be referred to."""

    run: int
    garbage: Amount
    young: Amount
    referenced: Amount


@dataclass(frozen=True)
class Savepoints:
    """Below `savepoints/` of the stream. `share`: of what is left of those that were never completed, and beside those that were; `run`
    is 0. `unfinished`: folders of the former -> the keys of what may go. `complete`: folders of the others -> the same, which attempts have
    left that came too late or were cut short. `unread`: folders whose `_metadata` cannot be read now, so that all there stays."""

    share: RunGarbage
    unfinished: Mapping[str, tuple[str, ...]]
    complete: Mapping[str, tuple[str, ...]]
    unread: tuple[str, ...]

    @property
    def keys(self) -> list[str]:
        """Of all that may go."""
        return [key for folders in (self.complete, self.unfinished) for keys in folders.values() for key in keys]


@dataclass(frozen=True)
class Garbage:
    """What was found under `claim`; `ended`: of a stream that was deleted.

    `metadata` and `objects` are the keys that may be deleted, in this order.
    """

    claim: Claim
    ended: bool
    checkpoints: tuple[CheckpointId, ...]
    metadata: tuple[str, ...]
    objects: tuple[str, ...]
    runs: tuple[RunGarbage, ...]
    probes: RunGarbage
    """What tests of the storage have left; `run` is 0."""
    savepoints: Savepoints

    def total(self) -> RunGarbage:
        """Over all these runs, probes and savepoints; `run` is 0."""

        def add(amounts: Iterable[Amount]) -> Amount:
            known = list(amounts)
            return Amount(sum(a.objects for a in known), sum(a.bytes for a in known))

        parts = (*self.runs, self.probes, self.savepoints.share)
        return RunGarbage(0, add(r.garbage for r in parts), add(r.young for r in parts), add(r.referenced for r in parts))


class WhatIsNeeded:
    """What a restart could use of a stream, as it is read: a part of its own, so that a test can read in another order."""

    def __init__(self, storage: Storage, tell: Tell) -> None:
        self.reader = StreamReader(storage)
        self.log = StreamLog(storage)
        self._tell = tell

    def standing(self, known: int) -> Standing:
        standing = self.reader.standing(known)
        if standing is None:
            raise DamagedError(
                f"the stream at {self.reader.url} has no log, so nothing tells which of its runs are superseded; nothing is deleted"
            )
        return standing

    def restorable(self, standing: Standing) -> list[Checkpoint]:
        """What a restart could use, now or after any later claim: the kept ones first, then the run's own.

        The other way round: (1) the run has no checkpoint yet; (2) it completes two and deletes the kept one; (3) that one is read:
        gone; (4) nothing names what the two still share with it.
        """
        claim = standing.claim
        if standing.ended:
            return []
        kept = sorted(kept_checkpoints(claim))
        read = {c: content for c in kept if (content := self.read(c)) is not None}
        reading = Task(self._tell, "reading checkpoints", None)
        for _ in range(ROUNDS):
            own = [c for c, _ in self.reader.checkpoints_of(claim.run)]
            for c in own:
                if c not in read and (content := self.read(c)) is not None:
                    read[c] = content
                    reading.add()
            if all(c in read for c in own):
                break
        else:
            raise self.moving()
        return list(read.values())

    def check(self, standing: Standing, restorable: list[Checkpoint]) -> None:
        """A run that lives has dropped what it began with only if it has newer ones."""
        claim = standing.claim
        gone = () if standing.ended else vanished(claim, (c.id for c in restorable))
        if gone and gone[0] == standing.never_made([c.id for c in restorable if c.id.run == claim.run]):
            raise DamagedError(
                f"{checkpoint_name(gone[0])}, the copy from which run {claim.run} of the stream at {self.reader.url} is to go on, is not "
                "there: not yet, or it is lost; nothing is deleted, for what is left may be needed for it: if nothing runs, put its "
                "_metadata back, or start the stream, or its restore, again"
            )
        if gone:
            raise DamagedError(
                f"{checkpoint_name(gone[0])}, which the stream at {self.reader.url} could go on from, is not there, and its run has not "
                "deleted it; nothing is deleted, for what is left may be needed to repair it: put its _metadata back, or start the stream "
                "once"
            )
        if not standing.ended and is_bare(standing.claim, standing.floor, (c.id for c in restorable)):
            raise DamagedError(
                f"the checkpoints of run {standing.claim.run} at {self.reader.url} are gone; nothing is deleted, for what is "
                "left may be needed to repair it: put its _metadata back"
            )

    def planned(self) -> frozenset[str]:
        """What plans in the log name that may be run again. Raises `FormatError` for an entry that cannot be read."""
        return planned_objects(entry for _, entry in self.log.each(self.log.found, self.log.numbers()) if entry is not None)

    def read(self, checkpoint: CheckpointId) -> Checkpoint | None:
        """None if the running stream has dropped it."""
        try:
            return self.reader.read(checkpoint)
        except ObjectMissingError:
            return None
        except FormatError as e:
            raise FormatError(f"{e}; nothing is deleted, for what {checkpoint_name(checkpoint)} refers to is not known") from e
        except DamagedError as e:
            raise DamagedError(
                f"{e}; nothing is deleted, for what {checkpoint_name(checkpoint)} refers to is not known: start the stream once, it goes "
                "back to the checkpoint before it, and try again"
            ) from e

    def moving(self) -> ConflictError:
        return ConflictError(f"the stream at {self.reader.url} changed each of {ROUNDS} times it was read; nothing is deleted, try again")


class Collector:
    """`storage` is rooted at the stream. `now_ms` is this machine's clock, `min_age_ms` what must lie between it and an object's time.

    `tell` hears how far it has come.

    The age is a belt only; that nothing needed is deleted rests on what was read, and not on this machine's clock. What may still be on its
    way, in the run that lives and of tests of the storage, has the `spark.ckpt.timeout` that this run's claim names, if that is longer.
    """

    def __init__(
        self, storage: Storage, min_age_ms: int, now_ms: int, tell: Tell = nobody, needed: type[WhatIsNeeded] = WhatIsNeeded
    ) -> None:
        self._storage = storage
        self._tell = tell
        self._min_age_ms = min_age_ms
        self._now_ms = now_ms
        self.needed = needed(storage, tell)

    def look(self) -> Garbage:
        """Raises `DamagedError` where it cannot be known what is referred to, `ConflictError` where runs follow each other too fast."""
        standing = self.needed.standing(0)
        if self._storage.size(paths.METADATA_NAME) is not None:
            raise ConflictError(
                f"a savepoint lies in the folder of the stream at {self.needed.reader.url}; nothing is deleted, for what it refers to "
                f"cannot be told from what runs have left: delete its {paths.METADATA_NAME} when it is not needed"
            )
        for _ in range(ROUNDS):
            restorable = self.needed.restorable(standing)
            again = self.needed.standing(standing.tail)
            if again.claim == standing.claim:
                self.needed.check(again, restorable)
                found = self.garbage_under(standing, restorable)
                if found is not None:
                    return found
                again = self.needed.standing(standing.tail)
            # A successor may have deleted both what was read and what was looked for in vain.
            standing = again
        raise self.needed.moving()

    def delete(self, found: Garbage) -> dict[str, str]:
        """Returns what stays of it, as where a person protects a savepoint: its folder -> why. Raises `StorageError`; what it left is found
        the next time.

        Rule: of a savepoint nothing is deleted before its `_metadata` can be nobody else's: (1) an edit stands still for longer than a day,
        on a laptop that sleeps; (2) its objects are deleted; (3) it wakes up, and puts `_metadata` that names them.

        Beside one that is complete nothing is deleted but by its `_metadata` of that moment: a person may have deleted it since it was
        looked at, and made another there out of objects with the same names.
        """
        delete_checkpoints(self._storage, found.metadata, found.objects, self._tell)
        stays: dict[str, str] = {}
        for folder, keys in (*found.savepoints.unfinished.items(), *found.savepoints.complete.items()):
            try:
                self._clear(folder, keys, folder in found.savepoints.complete)
            except (ConflictError, StorageSetupError) as e:
                stays[folder] = str(e)
        return stays

    def _clear(self, folder: str, keys: tuple[str, ...], complete: bool) -> None:
        """Raises `ConflictError` where somebody has changed what is there, and some of these keys stay."""
        on_disk = isinstance(self._storage, FileStorage)
        if complete and not keys and not on_disk:
            return  # and nothing has to be asked
        named = self._named_at_last(folder, complete)
        if named is not None:
            self._storage.delete([key for key in keys if key not in named])
            if on_disk:
                with closing(FileStorage(self._storage.url_of(folder.rstrip("/")))) as own:
                    own.end_all()
        elif not frozenset(keys).isdisjoint(stored.key for stored in self._storage.list(folder)):
            raise ConflictError("what is there has changed since it was looked at; look again")

    def _named_at_last(self, folder: str, complete: bool) -> frozenset[str] | None:
        """The keys that a savepoint names, if nobody can complete anything in its folder any more, else None."""
        if not complete:
            return frozenset() if self._give_up(folder) else None
        try:
            return self._read_names(folder)
        except (DamagedError, ObjectMissingError):
            return None

    def _give_up(self, folder: str) -> bool:
        """Whether the savepoint in that folder was not completed, and now cannot be any more."""
        key = folder + paths.METADATA_NAME
        return self._storage.put_if_absent(key, GIVEN_UP) is PutResult.STORED or self._is_given_up(key, self._storage.size(key))

    def _is_given_up(self, key: str, size: int | None) -> bool:
        return size == len(GIVEN_UP) and self._storage.get(key) == GIVEN_UP

    def garbage_under(self, standing: Standing, restorable: list[Checkpoint]) -> Garbage | None:
        """None: a successor has claimed meanwhile."""
        claim, ended = standing.claim, standing.ended
        stored: dict[str, Stored] = {}
        listing = Task(self._tell, "listing objects", None)
        for run in self.needed.reader.runs():
            if is_over(run, claim, ended):
                stored.update((s.key, s) for s in listing.each(self._storage.list(paths.run_prefix(run))))
        batch = garbage(claim, restorable, stored, ended)
        if not ended and any(paths.parse_driver_file_key(key) is not None for key in batch.objects):
            planned = self.needed.planned()
            since = self.needed.restorable(standing)
            again = self.needed.standing(standing.tail)
            if again.claim != claim:
                return None
            self.needed.check(again, since)
            restorable = [*restorable, *since]
            batch = garbage(claim, restorable, stored, planned=planned)
        checkpoints = {paths.metadata_key(c): c for c in batch.checkpoints}
        metadata = [key for key in checkpoints if self._old(stored[key])]
        spared = self._named_by([checkpoints[key] for key in checkpoints if not self._old(stored[key])])
        objects = [key for key in batch.objects if self._old(stored[key]) and key not in spared]
        going, superfluous = {*metadata, *objects}, {*checkpoints, *batch.objects}
        runs: dict[int, list[Stored]] = {}
        for key, s in stored.items():
            runs.setdefault(paths.parse_run_prefix(key.split("/", 1)[0]) or 0, []).append(s)
        shares = [_share(run, found, going, superfluous) for run, found in sorted(runs.items())]
        living = None if ended else self._of_living(standing, restorable, listing)
        if living is not None:
            objects += living[0]
            shares.append(living[1])
        probes = {s.key: s for s in self._storage.list(paths.PROBE_PREFIX) if paths.is_probe(s.key)}
        over = {key for key, s in probes.items() if self._old(s, claim.timeout_ms)}
        objects += sorted(over)
        left = _share(0, probes.values(), over, probes)
        read = tuple(checkpoints[key] for key in metadata)
        return Garbage(claim, ended, read, tuple(metadata), tuple(objects), tuple(shares), left, self._savepoints(listing))

    def _savepoints(self, listing: Task) -> Savepoints:
        """Those that have no `_metadata`, and of which everything is old; and what is old and not named by the `_metadata` of another. A
        folder in which there is anything else is left alone: it may be the stream of a query whose `checkpointLocation` has such a name."""
        folders: dict[str, dict[str, Stored]] = {}
        others: set[str] = set()
        for s in listing.each(self._storage.list(f"{paths.SAVEPOINTS_FOLDER}/")):
            folder = paths.parse_saved(s.key)
            if folder is not None:
                folders.setdefault(folder, {})[s.key] = s
            else:
                others.update(s.key[: at + 1] for at, letter in enumerate(s.key) if letter == "/")
        left: list[Stored] = []
        unfinished: dict[str, tuple[str, ...]] = {}
        complete: dict[str, tuple[str, ...]] = {}
        unread: list[str] = []
        reading = Task(self._tell, "reading savepoints", len(folders))
        for folder, stored in reading.each(sorted(folders.items())):
            if folder in others:
                continue
            mark = stored.pop(folder + paths.METADATA_NAME, None)
            if mark is None or self._is_given_up(mark.key, mark.size):
                left += stored.values()
                if stored and all(self._old(s, DAY_MS) for s in stored.values()):
                    unfinished[folder] = tuple(sorted(stored))
                continue
            named = self._named_in(folder)
            if named is None:
                unread.append(folder)
                continue
            unnamed = [s for key, s in sorted(stored.items()) if key not in named]
            left += unnamed
            complete[folder] = tuple(s.key for s in unnamed if self._old(s, DAY_MS))
        going = {key for folders in (complete, unfinished) for keys in folders.values() for key in keys}
        return Savepoints(_share(0, left, going, {s.key for s in left}), unfinished, complete, tuple(unread))

    def _named_in(self, folder: str) -> frozenset[str] | None:
        """The keys of a savepoint's objects, None where they are not known: it may also have been archived, or may not be read."""
        try:
            return self._read_names(folder)
        except (DamagedError, ObjectMissingError, StorageSetupError):
            return None

    def _read_names(self, folder: str) -> frozenset[str]:
        return frozenset(folder + key for key in read_metadata(self._storage, folder + paths.METADATA_NAME, None).objects)

    def _of_living(self, standing: Standing, restorable: list[Checkpoint], listing: Task) -> tuple[list[str], RunGarbage] | None:
        """None if there is nothing to delete."""
        claim = standing.claim
        newest = settled(c for c in restorable if c.id.run == claim.run)
        if newest is None:
            return None
        number = entry_before_barrier(claim, newest, standing.floor, self.needed.log.readable)
        before_ms = self.needed.log.stored_ms(number)
        if before_ms is None:
            return None
        stored = {s.key: s for s in listing.each(self._storage.list(paths.run_prefix(claim.run)))}
        times = {key: s.modified_ms for key, s in stored.items()}
        on_its_way = max(self._min_age_ms, claim.timeout_ms)
        found = garbage_of_living(Settled(newest, before_ms), restorable, times, on_its_way)
        going = [key for key in found if self._old(stored[key])]
        named = frozenset[str]().union(*(c.objects for c in restorable))
        unnamed = {key for key in stored if paths.parse_leavable(key) is not None and key not in named}
        return (going, _share(claim.run, stored.values(), set(going), unnamed)) if going else None

    def _old(self, stored: Stored, least_ms: int = 0) -> bool:
        return stored.modified_ms <= self._now_ms - max(self._min_age_ms, least_ms)

    def _named_by(self, young: list[CheckpointId]) -> frozenset[str]:
        """A checkpoint that stays for its age keeps its objects, however old those are."""
        named: set[str] = set()
        for checkpoint in young:
            try:
                named |= self.needed.reader.read(checkpoint).objects
            except (DamagedError, ObjectMissingError):
                continue  # nobody can read what it names, and nobody looks for it
        return frozenset(named)


def _share(run: int, stored: Iterable[Stored], going: Collection[str], unreferenced: Collection[str]) -> RunGarbage:
    found = list(stored)
    return RunGarbage(
        run,
        Amount.of(s for s in found if s.key in going),
        Amount.of(s for s in found if s.key in unreferenced and s.key not in going),
        Amount.of(s for s in found if s.key not in unreferenced),
    )
