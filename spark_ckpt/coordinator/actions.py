"""What the protocol asks of the storage, done: one instruction in, one event out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from spark_ckpt import paths
from spark_ckpt.coordinator.file_transfer import FileTransfer, store
from spark_ckpt.errors import (
    CheckpointError,
    ConfigError,
    ConflictError,
    DamagedError,
    ErrorKind,
    FormatError,
    ObjectMissingError,
    OutageError,
    OutcomeUnknownError,
    StorageSetupError,
)
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.process.pipe import describe
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, Restored
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.retention.planned_files import objects_by_entry
from spark_ckpt.storage.base import PutResult, Storage, Traffic
from spark_ckpt.storage.probe import check_put_if_absent
from spark_ckpt.stored.answers import put_answer
from spark_ckpt.stored.copies import RestorePath, import_objects, store_savepoint
from spark_ckpt.stored.deletion import delete_checkpoints
from spark_ckpt.stored.left_acks import left_acks
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.places import Places, savepoint_lies_at
from spark_ckpt.stored.presence import absent
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.taken_over import TakenOver

HINT_RUNS = 3
"""How many of the newest runs are searched for a checkpoint to start the gallop from."""


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
        self.transfer = FileTransfer()
        self._known = 0
        self._taken_over = TakenOver()
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
        """The event that answers; every error becomes one. So does a fault of this package, where the run can go on without what was asked:
        a forged request is not to end it."""
        try:
            return self._perform(asked)
        except StorageSetupError as error:
            return self._failed(asked, Outcome.HOPELESS, error)
        except OutcomeUnknownError as error:
            return self._failed(asked, Outcome.UNKNOWN, error)
        except (FormatError, OutageError) as error:
            return self._failed(asked, Outcome.HOPELESS, error)
        except CheckpointError as error:
            return self._failed(asked, Outcome.FAILED, error)
        except OSError as error:
            local = CheckpointError(f"the local disk does not serve ({error}); look at TMPDIR and free space")
            return self._failed(asked, Outcome.FAILED, local)
        except Exception as error:
            if not isinstance(asked, do.StoreSavepoint | do.AnswerRequest | do.Delete | do.Trimming):
                raise
            return self._failed(asked, Outcome.HOPELESS, CheckpointError(describe(error)["message"]))

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
            hopeless = outcome is Outcome.HOPELESS or error.kind is ErrorKind.DAMAGED
            return ev.FileStored(asked.ticket, asked.handle.object, Outcome.HOPELESS if hopeless else outcome, message)
        if isinstance(asked, do.Delete):
            return ev.Deleted(asked.ticket, message)
        if isinstance(asked, do.Trimming):
            return ev.TrimFailed(asked.ticket, message)
        if isinstance(asked, do.StoreSavepoint):
            hopeless = outcome is Outcome.HOPELESS or error.kind is not ErrorKind.STORAGE
            return ev.SavepointStored(asked.ticket, asked.number, None, message, hopeless)
        if isinstance(asked, do.AnswerRequest):
            return ev.RequestAnswered(asked.ticket, asked.number, outcome, message)
        if isinstance(asked, do.ImportObjects) and error.kind in (ErrorKind.MISSING, ErrorKind.CONFLICT):
            return ev.ReadFailed(asked.ticket, message, True, ErrorKind.DAMAGED)
        kind = error.kind if error.kind in (ErrorKind.DAMAGED, ErrorKind.CONFIG) else ErrorKind.STORAGE
        return ev.ReadFailed(asked.ticket, message, outcome is Outcome.HOPELESS, kind)

    def _perform(self, asked: do.Question | do.Delete | do.Trimming) -> ev.Event:
        match asked:
            case do.PutEntry():
                result, stored_ms = self._log.put(asked.number, asked.data)
                self._known = max(self._known, asked.number)
                return ev.EntryPut(asked.ticket, asked.number, _outcome(result), stored_ms=stored_ms)
            case do.LookPast():
                past, data = self._log.past(asked.number) or (None, None)
                return ev.PastSeen(asked.ticket, asked.number, past, data)
            case do.ListOldEntries():
                return self._list_old_entries(asked)
            case do.ReadPlans():
                return ev.PlansRead(asked.ticket, self._plans(asked.numbers))
            case do.DateEntries():
                dates = {number: self._log.stored_ms(number) for number in asked.numbers}
                return ev.EntriesDated(asked.ticket, {number: at for number, at in dates.items() if at is not None})
            case do.DeleteEntries():
                self.storage.delete(paths.answer_key(asked.run, number) for number in asked.numbers)
                self._log.delete(asked.numbers)
                return ev.EntriesDeleted(asked.ticket)
            case do.StoreMetadata():
                data = encode_metadata(asked.checkpoint)
                result = self.storage.put_if_absent(paths.metadata_key(asked.checkpoint.id), data)
                return ev.MetadataPut(asked.ticket, asked.checkpoint.id, _outcome(result), len(data))
            case do.StoreFile():
                store(self.storage, asked.handle, asked.source)
                return ev.FileStored(asked.ticket, asked.handle.object, Outcome.STORED)
            case do.FetchFiles():
                return ev.FilesFetched(asked.ticket, self._fetch_files(asked))
            case do.LocateTail():
                return ev.TailLocated(asked.ticket, self.locate_tail())
            case do.ReadEntry():
                return ev.EntryRead(asked.ticket, asked.number, self._log.read(asked.number))
            case do.CheckStorage():
                self._refuse_savepoint()
                check_put_if_absent(self.storage)
                return ev.StorageChecked(asked.ticket)
            case do.ListCheckpoints():
                found = tuple(checkpoint for checkpoint, _ in self._reader.checkpoints_of(asked.run))
                return ev.CheckpointsListed(asked.ticket, asked.run, found)
            case do.ReadMetadata():
                return self._read_metadata(asked)
            case do.VerifyObjects():
                return ev.ObjectsVerified(asked.ticket, asked.checkpoint.id, self._lacks(asked))
            case do.ReadLeftAcks():
                return ev.LeftAcksRead(asked.ticket, *left_acks(self.storage, asked.run, asked.epoch))
            case do.ReadRestorePath():
                return self._read_restore_path(asked)
            case do.DescribeOperators():
                return self._describe_operators(asked)
            case do.ImportObjects():
                return self._import_objects(asked)
            case do.StoreSavepoint():
                return self._store_savepoint(asked)
            case do.AnswerRequest():
                path = asked.path if asked.checkpoint is None else paths.checkpoint_url(self.url, asked.checkpoint)
                put_answer(self.storage, asked.run, asked.number, path, asked.error)
                return ev.RequestAnswered(asked.ticket, asked.number, Outcome.STORED)
            case do.Delete():
                owned = asked.savepoint if asked.savepoint and self._places.may_delete(asked.savepoint.path) else None
                if owned is not None and owned.imported is not None:
                    self._taken_over.look_at_copy(self.storage, owned.imported)
                delete_checkpoints(self.storage, [paths.metadata_key(c) for c in asked.checkpoints], asked.objects)
                return self._delete_savepoint(asked.ticket, owned)

    # --- savepoints

    def _refuse_savepoint(self) -> None:
        """A stream that begins in its folder would take its objects for what runs have left."""
        if self.storage.size(paths.METADATA_NAME) is not None:
            raise ConfigError(savepoint_lies_at(self.url))

    def _read_restore_path(self, asked: do.ReadRestorePath) -> ev.Event:
        chosen = RestorePath.at(asked.path)
        try:
            with self._opener(chosen.storage_url) as storage:
                return ev.RestorePathRead(asked.ticket, chosen.read(storage))
        except ObjectMissingError as error:
            return ev.RestorePathRead(asked.ticket, *self._stock_location(chosen, error))
        except DamagedError as error:
            return ev.RestorePathRead(asked.ticket, None, str(error))

    def _stock_location(self, chosen: RestorePath, error: ObjectMissingError) -> tuple[Checkpoint | None, str]:
        """What there is where no `_metadata` is, or why that is nothing to go on from."""
        if not chosen.is_savepoint:
            return None, str(error)
        from spark_ckpt.stock.importing import describe  # takes a while to load, and hardly any start needs it

        try:
            with self._opener(chosen.storage_url) as storage:
                if next(storage.list("offsets/"), None) is None:
                    return None, str(error)
                return describe(storage), ""
        except (ConflictError, DamagedError, ObjectMissingError) as stock:
            return None, str(stock)

    def _describe_operators(self, asked: do.DescribeOperators) -> ev.Event:
        from spark_ckpt.state.operators import describe  # hardly any start needs it

        try:
            return ev.OperatorsDescribed(asked.ticket, describe(self.transfer.contents(asked.files)))
        except (DamagedError, FormatError) as error:
            return ev.OperatorsDescribed(asked.ticket, None, str(error))

    def _import_objects(self, asked: do.ImportObjects) -> ev.Event:
        with self._opener(RestorePath.at(asked.path).storage_url) as storage:
            if asked.checkpoint.imported is not None and storage.size(paths.METADATA_NAME) is None:
                from spark_ckpt.stock.importing import import_into

                copied = import_into(storage, asked.checkpoint, self.storage, asked.run)
            else:
                copied = import_objects(storage, asked.checkpoint, self.storage, asked.run)
        return ev.ObjectsImported(asked.ticket, copied.snapshots, copied.files)

    def _lacks(self, asked: do.VerifyObjects) -> str | None:
        if not asked.deep:
            return next(absent(self.storage, asked.checkpoint.handles), None)
        from spark_ckpt.stored.verify import Verifier  # takes a while to load, and hardly any start looks so deep

        return Verifier(self.storage).verify(asked.checkpoint).damage

    def _fetch_files(self, asked: do.FetchFiles) -> str | None:
        if asked.path is None:
            return self.transfer.fetch(self.storage, asked.handles)
        with self._opener(RestorePath.at(asked.path).storage_url) as storage:
            return self.transfer.fetch(storage, asked.handles)

    def _delete_savepoint(self, ticket: int, owned: Restored | None) -> ev.Deleted:
        """Whatever keeps it from being deleted, what was copied from it is gone. A claim alone does not make a folder the stream's."""
        if owned is None:
            return ev.Deleted(ticket)
        savepoint = RestorePath.at(owned.path)
        try:
            with self._opener(savepoint.storage_url) as storage:
                self._taken_over.delete(savepoint, storage)
        except ConflictError as error:
            return ev.Deleted(ticket, savepoint_kept=str(error))
        except Exception as error:
            return ev.Deleted(ticket, savepoint_failure=str(describe(error)["message"]))
        return ev.Deleted(ticket)

    def _store_savepoint(self, asked: do.StoreSavepoint) -> ev.Event:
        request = asked.request
        name = request.name or f"savepoint-{asked.checkpoint.id.epoch}-{request.nonce[:12]}"
        url = self._places.savepoint(request.target, name)
        with self._opener(url) as target:
            store_savepoint(self.storage, asked.checkpoint, target)
        return ev.SavepointStored(asked.ticket, asked.number, url)

    # --- the log

    @property
    def _log(self) -> StreamLog:
        return StreamLog(self.storage)

    @property
    def _reader(self) -> StreamReader:
        return StreamReader(self.storage)

    def pause_before(self, claim: int) -> int | None:
        """`StreamLog.pause_before`."""
        return self._log.pause_before(claim)

    def locate_tail(self) -> int:
        """`StreamReader.tail`, looked for from the highest entry that is known to exist."""
        found = self._reader.tail(self._known or self._hint())
        self._known = max(self._known, found)
        return found

    def last_claim(self) -> Claim | None:
        """The claim of the newest run; None where the stream does not exist, or was ended on purpose."""
        tail = self.locate_tail()
        standing = self._reader.standing_at(tail) if tail else None
        return None if standing is None or standing.ended else standing.claim

    def _hint(self) -> int:
        """The entry that planned the newest checkpoint, 0 where none is found: only where to begin to look, nothing rests on it."""
        newest = self._reader.newest(HINT_RUNS)
        try:
            return self._checkpoint(newest).log if newest is not None else 0
        except (DamagedError, ObjectMissingError):
            return 0

    def _list_old_entries(self, asked: do.ListOldEntries) -> ev.Event:
        at_floor = self._log.found(asked.floor)
        found, more = self._log.old(asked.floor, asked.after)
        return ev.OldEntriesListed(asked.ticket, None if at_floor is None else at_floor.claim, tuple(found), more)

    def _plans(self, numbers: Iterable[int]) -> dict[int, frozenset[str] | None]:
        """What each names; None: the entry cannot be read, or is not there."""
        entries = self._log.each(self._log.readable, numbers)
        return {number: None if entry is None else objects_by_entry({number: entry})[number] for number, entry in entries}

    # --- checkpoints

    def _checkpoint(self, checkpoint: CheckpointId) -> Checkpoint:
        known = self._read.get(checkpoint)
        if known is None:
            known = self._reader.read(checkpoint)
            self._read = {checkpoint: known}
        return known

    def _read_metadata(self, asked: do.ReadMetadata) -> ev.Event:
        try:
            return ev.MetadataRead(asked.ticket, asked.id, self._exists_and_reads(asked.id))
        except FormatError:
            raise
        except DamagedError as error:
            return ev.MetadataRead(asked.ticket, asked.id, None, str(error))

    def _exists_and_reads(self, checkpoint: CheckpointId) -> Checkpoint | None:
        # What the hint read may have been deleted since: the protocol must not be told of it.
        if checkpoint in self._read and not self._reader.is_there(checkpoint):
            return None
        try:
            return self._checkpoint(checkpoint)
        except ObjectMissingError:
            return None


def _outcome(result: PutResult) -> Outcome:
    return Outcome.STORED if result is PutResult.STORED else Outcome.EXISTS
