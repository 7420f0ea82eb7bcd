"""What the protocol asks of the storage, done: one instruction in, one event out, and no exception."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from spark_ckpt import paths
from spark_ckpt.coordinator.handover import Handover, store
from spark_ckpt.errors import (
    CheckpointError,
    DamagedError,
    ErrorKind,
    FormatError,
    ObjectMissingError,
    OutageError,
    OutcomeUnknownError,
    StorageSetupError,
)
from spark_ckpt.model import Ack, Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, End, Request, decode
from spark_ckpt.protocol.planned_files import objects_by_entry
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.storage.base import PutResult, Storage, Traffic
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.metadata.limits import LIMITS
from spark_ckpt.stored.places import Places
from spark_ckpt.stored.presence import absent

HINT_RUNS = 3
"""How many of the newest runs are searched for a checkpoint to start the gallop from."""
HEADS = 8
"""Log entries looked at in parallel."""
LEFT_ACKS_BYTES = 64 * 1024 * 1024


class StorageActions:
    """Thread-safe. The storage is opened on first use, in the thread that uses it: loading boto3 takes hundreds of milliseconds.

    `places`: where the configuration lets savepoints be made and deleted; None: where it says nothing of that.
    """

    def __init__(self, url: str, opener: Callable[[str], Storage], places: Places | None = None) -> None:
        self.url = url
        self._places = places or Places(url)
        self._opener = opener
        self._lock = threading.Lock()
        self._opened: Storage | None = None
        self.traffic = Traffic()
        """What the stream's own storage was asked to do; not savepoint folders elsewhere."""
        self.handover = Handover()
        self._known = 0
        self._read: dict[CheckpointId, Checkpoint] = {}

    @property
    def storage(self) -> Storage:
        with self._lock:
            if self._opened is None:
                self._opened = self._opener(self.url)
                self.traffic = self._opened.traffic
            return self._opened

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()

    def perform(self, asked: do.Question | do.Delete | do.Trimming) -> ev.Event:
        """The event that answers; every error becomes one."""
        try:
            return self._perform(asked)
        except StorageSetupError as error:
            return self._failed(asked, Outcome.REFUSED, error)
        except OutcomeUnknownError as error:
            return self._failed(asked, Outcome.UNKNOWN, error)
        except (FormatError, OutageError) as error:
            return self._failed(asked, Outcome.REFUSED, error)
        except CheckpointError as error:
            return self._failed(asked, Outcome.FAILED, error)
        except OSError as error:
            local = CheckpointError(f"the local disk does not serve ({error}); look at TMPDIR and free space")
            return self._failed(asked, Outcome.FAILED, local)

    def given_up(self, asked: do.Question) -> ev.Event:
        """The event that answers a question that will not be asked (again)."""
        return self._failed(asked, Outcome.FAILED, CheckpointError("the coordinator ends"))

    def _failed(self, asked: do.Question | do.Delete | do.Trimming, outcome: Outcome, error: CheckpointError) -> ev.Event:
        message = str(error)
        if isinstance(asked, do.PutEntry):
            return ev.EntryPut(asked.ticket, asked.number, outcome, message)
        if isinstance(asked, do.StoreMetadata):
            return ev.MetadataPut(asked.ticket, asked.checkpoint.id, outcome, 0, message)
        if isinstance(asked, do.StoreFile):
            hopeless = outcome is Outcome.REFUSED or error.kind is ErrorKind.DAMAGED
            return ev.FileStored(asked.ticket, asked.handle.object, Outcome.REFUSED if hopeless else outcome, message)
        if isinstance(asked, do.Delete):
            return ev.Deleted(asked.ticket, message)
        if isinstance(asked, do.Trimming):
            return ev.TrimFailed(asked.ticket, message)
        if isinstance(asked, do.StoreSavepoint):
            hopeless = outcome is Outcome.REFUSED or error.kind is not ErrorKind.STORAGE
            return ev.SavepointStored(asked.ticket, asked.number, None, message, hopeless)
        if isinstance(asked, do.AnswerRequest):
            return ev.RequestAnswered(asked.ticket, asked.number, message)
        if isinstance(asked, do.CopySource) and error.kind is ErrorKind.MISSING:
            return ev.ReadFailed(asked.ticket, message, True, ErrorKind.DAMAGED)
        kind = error.kind if error.kind in (ErrorKind.DAMAGED, ErrorKind.CONFIG) else ErrorKind.STORAGE
        return ev.ReadFailed(asked.ticket, message, outcome is Outcome.REFUSED, kind)

    def _perform(self, asked: do.Question | do.Delete | do.Trimming) -> ev.Event:
        if isinstance(asked, do.PutEntry):
            result, stored_ms = self.storage.put_if_absent_dated(paths.log_key(asked.number), asked.data)
            self._known = max(self._known, asked.number)
            return ev.EntryPut(asked.ticket, asked.number, _outcome(result), stored_ms=stored_ms)
        if isinstance(asked, do.LookPast):
            found, data = self._log.past(asked.number) or (None, None)
            return ev.PastSeen(asked.ticket, asked.number, found, data)
        if isinstance(asked, do.ListOldEntries):
            return self._list_old_entries(asked)
        if isinstance(asked, do.ReadPlans):
            with ThreadPoolExecutor(HEADS, thread_name_prefix="log") as pool:
                return ev.PlansRead(asked.ticket, dict(zip(asked.numbers, pool.map(self._objects_of, asked.numbers), strict=True)))
        if isinstance(asked, do.DateEntries):
            dates = {number: self._log.stored_ms(number) for number in asked.numbers}
            return ev.EntriesDated(asked.ticket, {number: at for number, at in dates.items() if at is not None})
        if isinstance(asked, do.DeleteEntries):
            self._log.delete(asked.numbers)
            return ev.EntriesDeleted(asked.ticket)
        if isinstance(asked, do.StoreMetadata):
            from spark_ckpt.stored.metadata import codec as metadata

            data = metadata.encode(asked.checkpoint)
            result = self.storage.put_if_absent(paths.metadata_key(asked.checkpoint.id), data)
            return ev.MetadataPut(asked.ticket, asked.checkpoint.id, _outcome(result), len(data))
        if isinstance(asked, do.StoreFile):
            store(self.storage, asked.handle, asked.source)
            return ev.FileStored(asked.ticket, asked.handle.object, Outcome.STORED)
        if isinstance(asked, do.FetchFiles):
            return ev.FilesFetched(asked.ticket, self._fetch_files(asked))
        if isinstance(asked, do.LocateTail):
            return ev.TailLocated(asked.ticket, self.locate_tail())
        if isinstance(asked, do.ReadEntry):
            return ev.EntryRead(asked.ticket, asked.number, self.read_entry(asked.number))
        if isinstance(asked, do.CheckStorage):
            from spark_ckpt.storage.probe import check_put_if_absent

            check_put_if_absent(self.storage)
            return ev.StorageChecked(asked.ticket)
        if isinstance(asked, do.ListCheckpoints):
            return ev.CheckpointsListed(asked.ticket, asked.run, self.list_checkpoints(asked.run))
        if isinstance(asked, do.ReadMetadata):
            return self._read_metadata(asked)
        if isinstance(asked, do.VerifyObjects):
            return ev.ObjectsVerified(asked.ticket, asked.checkpoint.id, self._lacks(asked))
        if isinstance(asked, do.ReadLeftAcks):
            return self._left_acks(asked)
        if isinstance(asked, do.ReadSource):
            return self._read_source(asked)
        if isinstance(asked, do.CopySource):
            return self._copy_source(asked)
        if isinstance(asked, do.StoreSavepoint):
            return self._store_savepoint(asked)
        if isinstance(asked, do.AnswerRequest):
            doc = {"path": asked.path} if asked.error is None else {"error": asked.error}
            self.storage.put_if_absent(paths.answer_key(asked.run, asked.number), json.dumps(doc, ensure_ascii=False).encode())
            return ev.RequestAnswered(asked.ticket, asked.number)
        self.storage.delete([paths.metadata_key(c) for c in asked.checkpoints])
        self.storage.delete(asked.objects)
        if asked.source is not None:
            self._delete_source(asked.source)
        return ev.Deleted(asked.ticket)

    # --- savepoints

    def _read_source(self, asked: do.ReadSource) -> ev.Event:
        from spark_ckpt.stored.copies import Source

        source = Source.at(asked.path)
        try:
            with self._opener(source.root) as storage:
                return ev.SourceRead(asked.ticket, source.read(storage))
        except (DamagedError, ObjectMissingError) as error:
            return ev.SourceRead(asked.ticket, None, str(error))

    def _copy_source(self, asked: do.CopySource) -> ev.Event:
        from spark_ckpt.stored.copies import Source, import_objects

        with self._opener(Source.at(asked.path).root) as storage:
            copied = import_objects(storage, asked.checkpoint, self.storage, asked.run)
        return ev.SourceCopied(asked.ticket, copied.snapshots, copied.files)

    def _lacks(self, asked: do.VerifyObjects) -> str | None:
        if not asked.deep:
            return next(absent(self.storage, asked.checkpoint), None)
        from spark_ckpt.stored.verify import Verifier  # loads RocksDB, which no other start needs

        return Verifier(self.storage).verify(asked.checkpoint).damage

    def _fetch_files(self, asked: do.FetchFiles) -> str | None:
        from spark_ckpt.stored.copies import Source

        if asked.path is None:
            return self.handover.fetch(self.storage, asked.handles)
        with self._opener(Source.at(asked.path).root) as storage:
            return self.handover.fetch(storage, asked.handles)

    def _delete_source(self, path: str) -> None:
        """A claim alone does not make a folder the stream's."""
        from spark_ckpt.stored.copies import Source, delete_source

        if not self._places.may_delete(path):
            return
        source = Source.at(path)
        with self._opener(source.root) as storage:
            delete_source(source, storage)

    def _store_savepoint(self, asked: do.StoreSavepoint) -> ev.Event:
        from spark_ckpt.stored.copies import store_savepoint

        request = asked.request
        name = request.name or f"savepoint-{asked.checkpoint.id.epoch}-{request.nonce[:12]}"
        url = self._places.savepoint(request.target, name)
        with self._opener(url) as target:
            store_savepoint(self.storage, asked.checkpoint, target)
        return ev.SavepointStored(asked.ticket, asked.number, url)

    # --- the log

    def pause_before(self, number: int) -> int | None:
        """Milliseconds between claim `number` and what a run appended before it, by the storage's own times; None where one is gone.

        A request proves nothing: whoever asks a stream appends it, whether a query runs or not.
        """
        before, _ = self._log.newest_of_a_run(number - 1)
        was, at = self._log.stored_ms(before) if before else None, self._log.stored_ms(number)
        return None if was is None or at is None else at - was

    @property
    def _log(self) -> StreamLog:
        return StreamLog(self.storage)

    def locate_tail(self) -> int:
        """The log's highest number, by galloping upwards from the highest that is known to exist.

        Raises `DamagedError` where there are checkpoints without a log: a query must not begin from nothing then.
        """
        found = self._log.tail(self._known or self._hint())
        if found == 0 and self._has_checkpoints():
            raise DamagedError(
                f"{self.url} has checkpoints, but its log is gone; put {paths.LOG_PREFIX} back, or go on from one of them "
                "with spark.ckpt.restore.path, a new checkpointLocation and a new output path"
            )
        self._known = max(self._known, found)
        return found

    def _has_checkpoints(self) -> bool:
        runs = (paths.parse_run_prefix(folder) for folder in self.storage.list_folders(paths.RUN_PREFIX))
        return any(self.list_checkpoints(run) for run in runs if run is not None)

    def read_entry(self, number: int) -> bytes | None:
        return self._log.read(number)

    def _list_old_entries(self, asked: do.ListOldEntries) -> ev.Event:
        data = self.read_entry(asked.floor)
        found, more = self._log.old(asked.floor, asked.after)
        in_force = None if data is None else decode(asked.floor, data).claim
        return ev.OldEntriesListed(asked.ticket, in_force, tuple(found), more)

    def _objects_of(self, number: int) -> frozenset[str] | None:
        """None: the entry cannot be read, or is not there."""
        data = self.read_entry(number)
        try:
            return None if data is None else objects_by_entry({number: decode(number, data)})[number]
        except FormatError:
            return None

    def last_claim(self) -> Claim | None:
        """The claim of the newest run; None where the stream does not exist, or was ended on purpose."""
        tail = self.locate_tail()
        if tail == 0:
            return None
        entry = self._log.entry(tail)
        if isinstance(entry, Request):
            entry = self._log.newest_of_a_run(tail)[1] or entry
        if isinstance(entry, End):
            return None
        claim = entry if isinstance(entry, Claim) else self._log.entry(entry.claim)
        if not isinstance(claim, Claim):
            raise FormatError(f"log entry {entry.claim} of {self.url} should be a claim; the log is damaged")
        return claim

    def _hint(self) -> int:
        """The entry that planned the newest checkpoint, 0 where none is found: only where to begin to look, nothing rests on it."""
        runs = (paths.parse_run_prefix(folder) for folder in self.storage.list_folders(paths.RUN_PREFIX))
        for run in sorted((run for run in runs if run is not None), reverse=True)[:HINT_RUNS]:
            found = self.list_checkpoints(run)
            if found:
                try:
                    return self._checkpoint(max(found)).log
                except (DamagedError, ObjectMissingError):
                    return 0
        return 0

    # --- checkpoints

    def list_checkpoints(self, run: int) -> tuple[CheckpointId, ...]:
        found: list[CheckpointId] = []
        for stored in self.storage.list(paths.checkpoints_prefix(run)):
            folder, _, name = stored.key.rpartition("/")
            checkpoint = paths.parse_checkpoint_prefix(folder)
            if checkpoint is not None and name == paths.METADATA_NAME:
                found.append(checkpoint)
        return tuple(sorted(found))

    def _checkpoint(self, checkpoint: CheckpointId) -> Checkpoint:
        from spark_ckpt.stored.metadata import codec as metadata

        known = self._read.get(checkpoint)
        if known is not None:
            return known
        key = paths.metadata_key(checkpoint)
        data = self.storage.get(key, limit=LIMITS.file)
        decoded = metadata.decode(data, where=f"{self.url}/{key}")
        if decoded.id != checkpoint:
            raise DamagedError(f"{self.url}/{key} says it is run {decoded.id.run} epoch {decoded.id.epoch}")
        self._read = {checkpoint: decoded}
        return decoded

    def _read_metadata(self, asked: do.ReadMetadata) -> ev.Event:
        """Damaged for good only if it is damaged when read a second time: bytes can be lost on the way."""
        try:
            return ev.MetadataRead(asked.ticket, asked.id, self._exists_and_reads(asked.id))
        except FormatError:
            raise
        except DamagedError as error:
            if asked.attempt == 0:
                raise
            return ev.MetadataRead(asked.ticket, asked.id, None, str(error))

    def _exists_and_reads(self, checkpoint: CheckpointId) -> Checkpoint | None:
        # What the hint read may have been deleted since: the protocol must not be told of it.
        if checkpoint in self._read and self.storage.size(paths.metadata_key(checkpoint)) is None:
            return None
        try:
            return self._checkpoint(checkpoint)
        except ObjectMissingError:
            return None

    def _left_acks(self, asked: do.ReadLeftAcks) -> ev.Event:
        acks: list[Ack] = []
        keys: list[str] = []
        for stored in self.storage.list(paths.left_acks_prefix(asked.run, asked.epoch)):
            keys.append(stored.key)
            data = self.storage.get(stored.key, limit=LEFT_ACKS_BYTES)
            try:
                acks += [_checked(Ack.from_json(row)) for row in json.loads(data)["acks"] if "decline" not in row]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
                raise DamagedError(f"{self.url}/{stored.key} is not a list of acknowledgements") from error
        return ev.LeftAcksRead(asked.ticket, tuple(acks), tuple(keys))


def _checked(ack: Ack) -> Ack:
    """Of one that anybody may have left: what it names and no checkpoint needs is deleted. Raises `FormatError` for all that no
    checkpoint may hold."""
    from spark_ckpt.stored.metadata.columns import check_columns, columns_of
    from spark_ckpt.stored.metadata.rows import check_sizes

    columns = columns_of([ack.snapshot])
    try:
        check_columns(columns)
        check_sizes(columns, [len(ack.snapshot.handles)], LIMITS)
    except DamagedError as error:
        raise FormatError(f"an acknowledgement that was left in the storage is damaged or forged: {error}") from error
    return ack


def _outcome(result: PutResult) -> Outcome:
    return Outcome.STORED if result is PutResult.STORED else Outcome.EXISTS
