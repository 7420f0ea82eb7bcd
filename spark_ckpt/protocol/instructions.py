"""What the machine wants done, as data. Those with a `ticket` are answered by an event that carries it, in any order.

`attempt` counts from 0; before a later attempt the runtime waits as it sees fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint, CheckpointId, Content, FileHandle, Handle
from spark_ckpt.protocol.checkpoints.stats import NO_LAG, Lag, Summary
from spark_ckpt.protocol.entries import Claim, Plan, Request, Restored
from spark_ckpt.protocol.events import Timer
from spark_ckpt.protocol.reasons import HandoverFailure


@dataclass(frozen=True)
class LocateTail:
    """Find the log's highest number -> TailLocated."""

    ticket: int
    attempt: int = 0


@dataclass(frozen=True)
class ReadEntry:
    """-> EntryRead."""

    ticket: int
    number: int
    attempt: int = 0


@dataclass(frozen=True)
class PutEntry:
    """Put-if-absent -> EntryPut."""

    ticket: int
    number: int
    data: bytes = field(repr=False)
    attempt: int = 0


@dataclass(frozen=True)
class LookPast:
    """See with a LIST which entry is the first past this one -> PastSeen."""

    ticket: int
    number: int
    attempt: int = 0


@dataclass(frozen=True)
class DateEntries:
    """-> EntriesDated."""

    ticket: int
    numbers: tuple[int, ...]
    attempt: int = 0


@dataclass(frozen=True)
class ListOldEntries:
    """In the background: the log from behind `after` up to `floor` -> OldEntriesListed, or TrimFailed."""

    ticket: int
    floor: int
    after: int


@dataclass(frozen=True)
class ReadPlans:
    """In the background -> PlansRead, or TrimFailed."""
    ticket: int
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class DeleteEntries:
    """In the background: these entries of the log, and before them what run `run` has answered to those that are requests
    -> EntriesDeleted, or TrimFailed."""

    ticket: int
    numbers: tuple[int, ...]
    run: int


@dataclass(frozen=True)
class CheckStorage:
    """First start: see that put-if-absent really works -> StorageChecked, or ReadFailed."""

    ticket: int
    attempt: int = 0


@dataclass(frozen=True)
class ListCheckpoints:
    """-> CheckpointsListed."""

    ticket: int
    run: int
    attempt: int = 0


@dataclass(frozen=True)
class ReadMetadata:
    """-> MetadataRead."""

    ticket: int
    id: CheckpointId
    attempt: int = 0


@dataclass(frozen=True)
class VerifyObjects:
    """See that every object the checkpoint names is there and long enough; `deep`: that it has the right checksums -> ObjectsVerified."""

    ticket: int
    checkpoint: Checkpoint = field(repr=False)
    attempt: int = 0
    deep: bool = False


@dataclass(frozen=True)
class StoreMetadata:
    """Put-if-absent -> MetadataPut."""

    ticket: int
    checkpoint: Checkpoint = field(repr=False)
    attempt: int = 0


@dataclass(frozen=True)
class StoreFile:
    """Put a large file of the driver: `source` is its content, or the path of the local file that holds it and goes then -> FileStored.

    Its key has its content's digest in it, so it may be put any number of times.
    """

    ticket: int
    handle: FileHandle
    source: bytes | str = field(repr=False)
    attempt: int = 0


@dataclass(frozen=True)
class FetchFiles:
    """Bring large files of the driver to the local disk, compared with their checksums -> FilesFetched. `path`: URL of the checkpoint or
    savepoint that they belong to, None for one of the stream itself."""

    ticket: int
    handles: tuple[FileHandle, ...] = field(repr=False)
    path: str | None = None
    attempt: int = 0


@dataclass(frozen=True)
class ReadLeftAcks:
    """-> LeftAcksRead."""

    ticket: int
    run: int
    epoch: int
    attempt: int = 0


@dataclass(frozen=True)
class ReadRestorePath:
    """Read what a person wants to restore, by the URL of its folder -> RestorePathRead."""

    ticket: int
    path: str
    attempt: int = 0


@dataclass(frozen=True)
class DescribeOperators:
    """What the operators are whose files below `state/` these are -> OperatorsDescribed."""

    ticket: int
    files: Mapping[str, Content] = field(repr=False)
    attempt: int = 0


@dataclass(frozen=True)
class ImportObjects:
    """Copy the objects of the checkpoint at `path` under the prefix of run `run` of this stream -> ObjectsImported."""

    ticket: int
    path: str
    checkpoint: Checkpoint = field(repr=False)
    run: int
    attempt: int = 0


@dataclass(frozen=True)
class StoreSavepoint:
    """Copy a completed checkpoint into a folder of its own, as the request in log entry `number` asks -> SavepointStored. The same request
    names the same folder at every attempt."""

    ticket: int
    checkpoint: Checkpoint = field(repr=False)
    request: Request
    number: int
    attempt: int = 0


@dataclass(frozen=True)
class AnswerRequest:
    """Tell the person who asked in log entry `number`: the savepoint's URL, the completed checkpoint, or why there is none ->
    RequestAnswered."""

    ticket: int
    run: int
    number: int
    path: str | None
    error: str | None = None
    attempt: int = 0
    checkpoint: CheckpointId | None = None


@dataclass(frozen=True)
class Delete:
    """In the background: first the checkpoints' `_metadata`, and only once those are gone the objects -> Deleted.

    `savepoint`: that of which one of the checkpoints is a copy, and which goes after it; alone, where it could not go then.
    """

    ticket: int
    checkpoints: tuple[CheckpointId, ...]
    objects: tuple[str, ...]
    savepoint: Restored | None = None


@dataclass(frozen=True)
class SetTimer:
    """-> TimerFired after so many milliseconds."""

    ticket: int
    timer: Timer
    after_ms: int


@dataclass(frozen=True)
class CancelTimer:
    ticket: int


class RequestName(Enum):
    START = "start"
    RESUME = "resume"
    TRIGGER = "trigger"
    SEAL = "seal"
    FINISH = "finish"


class Gate(Enum):
    """What `commits/N` waits for."""

    EPOCH = "EPOCH"
    """Checkpoint N."""
    BACKGROUND = "BACKGROUND"
    """Nothing: checkpoints complete in the background."""


@dataclass(frozen=True)
class Refused:
    """Answer of an open request: it failed."""

    request: RequestName
    kind: ErrorKind
    message: str


@dataclass(frozen=True)
class Started:
    """Answer of `start`. `planned`: further epochs planned beyond `epoch`, which must run as planned too.

    `restored`: the path that a person chose for this stream, now or at an earlier start. `version`, `begins`: as in `Triggered`.
    `taken_over`: the claim before this run's, if it was another application's. `hooks`: their states in the origin. `real_time`: it is one
    in real time; one of a real-time query that is not ends with the last epoch that was planned, and the query starts again."""

    run: int
    claim: int
    origin: CheckpointId | None
    epoch: int
    rerun: bool
    time_ms: int
    files: Mapping[str, Content] = field(repr=False)
    planned: tuple[Plan, ...] = field(default=(), repr=False)
    gate: Gate = Gate.EPOCH
    restored: str | None = None
    version: int | None = None
    taken_over: Claim | None = None
    hooks: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    begins: tuple[int, ...] = ()
    real_time: bool = False


@dataclass(frozen=True)
class Compare:
    """Answer of `start` in place of `Started`, and nothing has been written: the driver's files of what is to be gone on from, less those
    of sources. `plan`: the query is to be planned as a new one, and the start asked for with that; else the schemas of its state are to be
    compared, as only Spark can, and if they fit the start is asked for once more. `path`: what it is, for people."""

    path: str
    epoch: int
    files: Mapping[str, Content] = field(repr=False)
    plan: bool = False


@dataclass(frozen=True)
class Resumed:
    """Answer of `resume`."""


@dataclass(frozen=True)
class Triggered:
    """Answer of `trigger`: the epoch may run. `base`: the newest completed checkpoint.

    `checkpoint`: whether the epoch's snapshots are to be uploaded. `late`: a finished epoch whose snapshots are wanted after all.
    `version`: that of the state the epoch begins with, where it is not the epoch's number (`Claim.first`). `begins`: operators without any
    (`Checkpoint.begins`). `sparse`: packs of which little is needed any more (`sparse_packs.py`).
    """

    run: int
    epoch: int
    base: CheckpointId | None
    time_ms: int
    checkpoint: bool = True
    late: int | None = None
    version: int | None = None
    sparse: tuple[str, ...] = ()
    begins: tuple[int, ...] = ()


@dataclass(frozen=True)
class Sealed:
    """Answer of `seal`. `summary`: docs/pipes.md, less `path`; None where the checkpoint, if there is one, completes in the background."""

    summary: Mapping[str, Any] | None
    lag: Lag = NO_LAG


@dataclass(frozen=True)
class Finished:
    """Answer of `finish`: the newest epoch, if any ever ran, is in a completed checkpoint. `savepoint`: its URL, if one was made."""

    savepoint: str | None = None


@dataclass(frozen=True)
class Late:
    """Executors are to upload what they have of this finished epoch; None: no longer."""

    run: int
    epoch: int | None


@dataclass(frozen=True)
class TellHooks:
    """There is a durable checkpoint of this epoch, which covers all epochs up to it; or there is none of it, and that is all."""

    epoch: int
    completed: bool


@dataclass(frozen=True)
class HandOver:
    """Whoever reports that it holds this commit is to make it durable now."""

    uid: str


@dataclass(frozen=True)
class HandedOver:
    """Answer of `StateWanted`: where the commit is stored."""

    uid: str
    handles: tuple[Handle, ...] = field(repr=False)


@dataclass(frozen=True)
class NotHandedOver:
    """Answer of `StateWanted`."""

    uid: str
    reason: HandoverFailure
    cause: str = ""


@dataclass(frozen=True)
class Stopping:
    """A person asked for the end of the query in that run: after the running epoch the driver sends `finish` and ends. `drain`: after one
    more epoch, whose watermark is at the end of time."""

    run: int
    drain: bool


@dataclass(frozen=True)
class Failed:
    """The query has to fail at its next step, although no request of it is open."""
    kind: ErrorKind
    message: str


@dataclass(frozen=True)
class Stopped:
    """Answer of `stop`."""


class Announcement(Enum):
    TRIGGERED = "TRIGGERED"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"
    RESTORED = "RESTORED"
    SAVEPOINT = "SAVEPOINT"
    """A savepoint was made of a completed checkpoint; `savepoint` is its URL."""
    STANDS = "STANDS"
    """A coordinator that replaces another finds this as the run's newest completed one, and does not know whether anybody was told."""


@dataclass(frozen=True)
class Announce:
    """Tell listeners."""

    event: Announcement
    content: Summary | Mapping[str, Any]

    @property
    def summary(self) -> Mapping[str, Any]:
        """docs/pipes.md, less `path`. Made when it is looked at: the query, which is answered first, does not wait for it."""
        return self.content.announcement() if isinstance(self.content, Summary) else self.content


class Level(Enum):
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Log:
    level: Level
    message: str


Question = (
    LocateTail
    | ReadEntry
    | PutEntry
    | LookPast
    | DateEntries
    | CheckStorage
    | ListCheckpoints
    | ReadMetadata
    | VerifyObjects
    | StoreMetadata
    | StoreFile
    | FetchFiles
    | ReadLeftAcks
    | ReadRestorePath | DescribeOperators
    | ImportObjects
    | StoreSavepoint
    | AnswerRequest
)
"""Those that can be asked again."""

Trimming = ListOldEntries | ReadPlans | DeleteEntries
"""In the background; each follows from the answer to the one before (`log_trim.py`)."""

Instruction = (
    Question
    | Delete
    | Trimming
    | SetTimer
    | CancelTimer
    | Refused
    | Started
    | Compare
    | Resumed
    | Triggered
    | Sealed
    | Finished
    | Late
    | TellHooks
    | HandOver
    | HandedOver
    | NotHandedOver
    | Failed
    | Stopping
    | Stopped
    | Announce
    | Log
)
