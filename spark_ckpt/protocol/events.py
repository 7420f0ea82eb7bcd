"""What happens to a stream, as data. The runtime turns requests, storage answers and time into these.

Answers carry the ticket of the instruction they answer. One whose ticket is no longer waited for is ignored: answers may come late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Content, Decline, Job, Snapshot
from spark_ckpt.protocol.entries import Application
from spark_ckpt.protocol.operators import Operator, OperatorChoice
from spark_ckpt.protocol.reasons import Outcome


class Timer(Enum):
    PLAN = "PLAN"
    """The plan of an epoch is to be stored by then."""
    GRACE = "GRACE"
    """How long after an executor's loss its snapshots may still turn up."""
    IDLE = "IDLE"
    """Look at the log's next number."""
    INTERVAL = "INTERVAL"
    """The next checkpoint is due."""
    LONG = "LONG"
    """The epoch in hand has run for a whole interval."""
    PAUSE = "PAUSE"
    """`minPause` after the end of a checkpoint is over."""
    UNASKED = "UNASKED"
    """Where checkpoints are only made when somebody asks: whether that was long ago."""
    EXPIRY = "EXPIRY"
    """A checkpoint in the background is to be complete by then; each has one of its own, from the end of its epoch on."""


@dataclass(frozen=True)
class Restore:
    """What a person chose to go on from. `path`: URL of a checkpoint's or savepoint's folder.

    `own`: that checkpoint, if it is one of the stream. `owned`: `path` is a savepoint, which is to become the stream's (CLAIM).
    `rival`: another query of this application that goes on from `path`.
    """

    path: str
    own: CheckpointId | None = None
    owned: bool = False
    discard: bool = False
    rival: str | None = None


@dataclass(frozen=True)
class HookStates:
    """What the query's hooks gave at the end of an epoch: by name their states, None for none. `declined`: why one of them gave nothing."""

    states: Mapping[str, bytes | None] = field(default_factory=dict)
    declined: str = ""


@dataclass(frozen=True)
class StartRequested:
    """A query starts. `local`: paths of the files in its `checkpointLocation`; `nonce`: from the runtime, never used before.

    `forgetful`: sources that are not known to replay. `sink_seen`: the highest batch id that the sink remembers, where that is known.
    """

    query_id: str
    job: Job
    local: tuple[str, ...]
    nonce: str
    host: str
    versions: Mapping[str, str] = field(default_factory=dict)
    forgetful: tuple[str, ...] = ()
    sink_seen: int | None = None
    restore: Restore | None = None
    spark_run_id: str = ""
    """Which start of the query this is, by Spark's run id. `again`: it ran before in this start and goes back to its last checkpoint in
    place; only while the stream is still its own, for else it would take it back from its successor."""
    again: bool = False
    application: Application | None = None
    savepoint_dir: str = ""
    """What the claim to come says of the configuration."""
    compared: bool = True
    """False: before the stream goes on from what a person chose, whoever asks wants to compare its state's schemas with the query's."""
    from_zero: bool = False
    """An operator can begin in epoch 0 only (`transformWithState`; a `flatMapGroupsWithState` with an initial state)."""
    hooks: tuple[str, ...] = ()
    """Names of the query's hooks."""
    operators: OperatorChoice = field(default_factory=OperatorChoice)
    planned: Mapping[str, bytes] | None = None
    """The files below `state/` that Spark has written for this query, planned as a new one (`start/changing.py`); None: not yet."""
    initial: tuple[int, ...] = ()
    """Its operators that have an initial state."""
    real_time: bool = False
    """It has a real-time trigger. What it finds planned runs as it was planned all the same, in a run of its own (`Started.real_time`)."""


@dataclass(frozen=True)
class ResumeRequested:
    """The process that drove run `run` died; this one takes its place. `epoch`: the one in hand.

    `sealed`: the newest epoch whose seal was answered, -1 for none; `files`: the driver's `commits/` of that one and the one before, and
    what else came with a seal since the last plan that is known to be stored. `hooks`: as in `StartRequested`; `sealed_hooks`: what they
    gave at the end of `sealed`. `real_time`: the run is one in real time, and `files` has its `offsets/` too; `running`: the
    barrier of `epoch` was given.
    """

    run: int
    claim: int
    epoch: int
    forgetful: tuple[str, ...] = ()
    sealed: int = -1
    files: Changes = field(default_factory=dict)
    hooks: tuple[str, ...] = ()
    sealed_hooks: HookStates = field(default_factory=HookStates)
    real_time: bool = False
    running: bool = False


@dataclass(frozen=True)
class LocalFile:
    """A file of the driver that is too large for a line of the pipe: the JVM has put it at `path`. `digest`: the first 32 digits of its
    SHA-256 in hexadecimal; `checksum`: its CRC-32."""

    path: str
    length: int
    checksum: int
    digest: str


Changes = Mapping[str, bytes | LocalFile | None]
"""Files that the driver has written, or deleted (None): path below the `checkpointLocation` -> content."""


@dataclass(frozen=True)
class TriggerRequested:
    """`drain`: the epoch has no rows, and the watermark at the end of time, as somebody has asked who stops the query for good.

    In a run in real time `offsets` is empty: what the epoch reads is known when it has ended.
    """

    epoch: int
    offsets: bytes
    files: Changes = field(default_factory=dict)
    drain: bool = False


@dataclass(frozen=True)
class SealRequested:
    """`offsets`: what a real-time epoch has read."""

    epoch: int
    commit: bytes
    files: Changes = field(default_factory=dict)
    hooks: HookStates = field(default_factory=HookStates)
    offsets: bytes = b""


@dataclass(frozen=True)
class FinishRequested:
    """No further epoch will run: the newest one is to be in a completed checkpoint. `stopping`: a person asked to stop with a savepoint;
    `drained`: and to drain the query first, which is done."""

    stopping: bool = False
    drained: bool = False


@dataclass(frozen=True)
class StopRequested:
    """`delete`: the stream's checkpoints are to go (`onStop=DELETE` and a person stopped it)."""

    failed: bool
    delete: bool = False


@dataclass(frozen=True)
class AcksReceived:
    """Those that came together: of one executor, or of several that said them at once."""

    acks: Sequence[Ack]


@dataclass(frozen=True)
class DeclineReceived:
    decline: Decline


@dataclass(frozen=True)
class HoldingReceived:
    """`bytes`: what lies in the executor's spool and is not in the storage yet."""

    executor: str
    held: frozenset[str]
    bytes: int = 0


@dataclass(frozen=True)
class StateWanted:
    """A task needs the commit `uid` of this epoch, which another executor has made, and which no completed checkpoint holds that the task
    knows of. `executors`: those that take part in the run, and that Spark counts on: nobody else can have it."""

    uid: str
    epoch: int
    executors: frozenset[str]


@dataclass(frozen=True)
class ExecutorsLost:
    """Of one that died, or of all that have so far: to a coordinator that replaces another one."""

    executors: frozenset[str]


@dataclass(frozen=True)
class DamageReported:
    """An executor could not load its state: `object` is missing or damaged, `checkpoint` the completed one it was read for, where known."""

    object: str | None
    checkpoint: CheckpointId | None
    cause: str


@dataclass(frozen=True)
class TimerFired:
    ticket: int
    timer: Timer


@dataclass(frozen=True)
class TailLocated:
    """The log's highest number, 0 where there is no log."""

    ticket: int
    number: int


@dataclass(frozen=True)
class EntryRead:
    """`data` is None where there is no such entry."""

    ticket: int
    number: int
    data: bytes | None


@dataclass(frozen=True)
class EntryPut:
    """`stored_ms`: when, by the storage's clock; None where that is not known, and where it was not stored."""

    ticket: int
    number: int
    outcome: Outcome
    message: str = ""
    stored_ms: int | None = None


@dataclass(frozen=True)
class PastSeen:
    """`found`: the first entry of the log past `number`, with its content; None where there is none."""

    ticket: int
    number: int
    found: int | None
    data: bytes | None = None


@dataclass(frozen=True)
class EntriesDated:
    """When each of these entries was stored, by the storage's clock; those that are not there are left out."""

    ticket: int
    stored_ms: Mapping[int, int]


@dataclass(frozen=True)
class OldEntriesListed:
    """`in_force`: the claim under which the entry at the floor was written, None where that entry is missing. `found`: entries below the
    floor, ascending, and when each was stored, by the storage's clock; `more`: there are others behind them."""

    ticket: int
    in_force: int | None
    found: tuple[tuple[int, int], ...]
    more: bool = False


@dataclass(frozen=True)
class PlansRead:
    """What each of these entries names that is an object of its own: nothing, unless it is a plan; None: it cannot be read, or is not
    there."""

    ticket: int
    objects: Mapping[int, frozenset[str] | None]


@dataclass(frozen=True)
class EntriesDeleted:
    ticket: int


@dataclass(frozen=True)
class TrimFailed:
    """What was asked about old entries of the log had no answer, or not all of them are gone."""

    ticket: int
    message: str


@dataclass(frozen=True)
class StorageChecked:
    """Put-if-absent works there."""

    ticket: int


@dataclass(frozen=True)
class CheckpointsListed:
    ticket: int
    run: int
    found: tuple[CheckpointId, ...]


@dataclass(frozen=True)
class MetadataRead:
    """`checkpoint` None and `damage` None: there is none. `damage`: it is there and cannot be trusted."""

    ticket: int
    id: CheckpointId
    checkpoint: Checkpoint | None
    damage: str | None = None


@dataclass(frozen=True)
class ObjectsVerified:
    """`damage` names an object of the checkpoint that is missing or too short, None if all are there."""

    ticket: int
    id: CheckpointId
    damage: str | None


@dataclass(frozen=True)
class MetadataPut:
    """`size`: bytes of `_metadata`."""

    ticket: int
    id: CheckpointId
    outcome: Outcome
    size: int = 0
    message: str = ""


@dataclass(frozen=True)
class FileStored:
    """What became of a put of the driver's large file `name`, an object of that key."""

    ticket: int
    name: str
    outcome: Outcome
    message: str = ""


@dataclass(frozen=True)
class FilesFetched:
    """The driver's large files are on the local disk, or `damage` says which of them is missing or damaged in the storage."""

    ticket: int
    damage: str | None = None


@dataclass(frozen=True)
class LeftAcksRead:
    """What agents that outlived their executor left in the storage; `keys`: of the objects that say so; `unreadable`: what is wrong with
    others that do not count."""

    ticket: int
    acks: tuple[Ack, ...]
    keys: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True)
class RestorePathRead:
    """What a person wants to restore; None, with the reason in `problem`, where it cannot be."""

    ticket: int
    checkpoint: Checkpoint | None
    problem: str = ""


@dataclass(frozen=True)
class OperatorsDescribed:
    """None, with the reason in `problem`, where the files do not tell."""

    ticket: int
    operators: tuple[Operator, ...] | None
    problem: str = ""


@dataclass(frozen=True)
class ObjectsImported:
    """The source's snapshots and driver's files, with the handles of their copies."""

    ticket: int
    snapshots: tuple[Snapshot, ...]
    files: Mapping[str, Content]


@dataclass(frozen=True)
class SavepointStored:
    """`url` of its folder; None, with the reason in `message`, where it could not be stored. `hopeless`: trying again cannot help."""

    ticket: int
    number: int
    url: str | None
    message: str = ""
    hopeless: bool = False

    @property
    def outcome(self) -> Outcome:
        if self.url is not None:
            return Outcome.STORED
        return Outcome.HOPELESS if self.hopeless else Outcome.FAILED


@dataclass(frozen=True)
class RequestAnswered:
    """`outcome`: what became of the put of the answer."""

    ticket: int
    number: int
    outcome: Outcome
    message: str = ""


@dataclass(frozen=True)
class Deleted:
    """`failure`: why not all checkpoints and objects are gone. `savepoint_failure`: they are, and the savepoint is not. `savepoint_kept`:
    why it is not the stream's to delete."""

    ticket: int
    failure: str | None = None
    savepoint_failure: str | None = None
    savepoint_kept: str | None = None


@dataclass(frozen=True)
class ReadFailed:
    """A look at the storage had no answer. `hopeless`: trying again cannot help."""

    ticket: int
    message: str
    hopeless: bool = False
    kind: ErrorKind = ErrorKind.STORAGE


Request = StartRequested | ResumeRequested | TriggerRequested | SealRequested | FinishRequested | StopRequested
Answer = (
    TimerFired
    | TailLocated
    | EntryRead
    | EntryPut
    | PastSeen
    | EntriesDated
    | OldEntriesListed
    | PlansRead
    | EntriesDeleted
    | TrimFailed
    | StorageChecked
    | CheckpointsListed
    | MetadataRead
    | ObjectsVerified
    | MetadataPut
    | FileStored
    | FilesFetched
    | LeftAcksRead
    | RestorePathRead
    | OperatorsDescribed
    | ObjectsImported
    | SavepointStored
    | RequestAnswered
    | Deleted
    | ReadFailed
)
Event = Request | AcksReceived | DeclineReceived | HoldingReceived | StateWanted | ExecutorsLost | DamageReported | Answer
