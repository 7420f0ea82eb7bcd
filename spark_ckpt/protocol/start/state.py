"""What the beginning of a run remembers, and what it hands to the run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from spark_ckpt.errors import without_way_out
from spark_ckpt.model import Checkpoint, CheckpointId, Content, FileHandle
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import DriverFiles
from spark_ckpt.protocol.durable_put import DurablePut
from spark_ckpt.protocol.entries import DEFAULT_TIMEOUT_MS, Claim, End, Entry, Plan, Request
from spark_ckpt.protocol.instructions import Instruction, RequestName
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.protocol.retention.order import is_retained, newest_first
from spark_ckpt.protocol.start.recovery import Recovery


class Step(Enum):
    TAIL = "TAIL"
    """Locate the tail, read the last claim, compare the job."""
    CHECKPOINTS = "CHECKPOINTS"
    """List the checkpoints of the last claim's run, read them, choose the origin, read the plans past it."""


class StartOrder:
    """Rule: the tail is read *before* the checkpoints are listed, and the claim goes to the number after that tail.

    Otherwise: (1) list, newest is K; (2) the old run completes K+1, appends its next plan and deletes K; (3) read the tail, which now
    includes that plan, and claim behind it with origin K, which is gone.
    """

    def steps(self) -> tuple[Step, ...]:
        return (Step.TAIL, Step.CHECKPOINTS)


class StartPhase(Enum):
    NEW = "NEW"
    LOCATING = "LOCATING"
    READING_TAIL = "READING_TAIL"
    READING_CLAIM = "READING_CLAIM"
    CHECKING_STORAGE = "CHECKING_STORAGE"
    LISTING = "LISTING"
    READING_BEHIND = "READING_BEHIND"
    READING_SOURCE = "READING_SOURCE"
    DATING = "DATING"
    """How old the entries are that a savepoint below the floor takes."""
    READING_ITS_PLAN = "READING_ITS_PLAN"
    READING_METADATA = "READING_METADATA"
    FETCHING = "FETCHING"
    """Large files of the driver are brought to the local disk."""
    VERIFYING = "VERIFYING"
    CONFIRMING = "CONFIRMING"
    """Whether the log has grown, since something is missing."""
    READING_PLANS = "READING_PLANS"
    COPYING = "COPYING"
    CLAIMING = "CLAIMING"
    LOOKING_PAST = "LOOKING_PAST"
    """Whether the claim stands at the log's end."""
    IMPORTING = "IMPORTING"
    DONE = "DONE"
    REFUSED = "REFUSED"


@dataclass(frozen=True)
class Replaced:
    """What a coordinator finds that takes the place of another one.

    `requests`: what that one may have taken up, by log entry. `sealed`: the newest finished epoch, -1 for none. `in_hand`: the newest that
    the driver has triggered, or is about to. `unplanned`: what the driver has written that may be in no plan.
    """

    requests: tuple[tuple[int, Request], ...]
    sealed: int = -1
    in_hand: int = -1
    unplanned: ev.Changes = field(default_factory=dict)


@dataclass(frozen=True)
class Beginning:
    """What a run begins with. `next_number`: of the log. `plan`: that of the first epoch, if it has one.

    `numbers`: epoch -> the entry under the run's own claim that plans it, for the first that runs again the claim, which adopts its plan.
    A checkpoint's `log` is that one: all that the run plans for later epochs stands behind it or is adopted, where the next start looks.
    Others that run again are appended when they are triggered, so that a run that repeats old epochs is fenced like any other.
    `aside`: checkpoints past the one that a person chose to go back to. Nobody goes on from them any more, and the run deletes them when
    it has completed one of its own.
    `planned`: the entries before `next_number` of which it is known what they name that is an object of its own. `floor`: of the log's
    tail. `stored_ms`: when the claim was put, by the storage's clock, where it was just put and that is known.
    """

    claim: Claim
    next_number: int
    origin: Checkpoint | None
    inherited: tuple[Checkpoint, ...]
    files: DriverFiles
    epoch: int
    plan: Plan | None
    numbers: Mapping[int, int]
    recorded: tuple[Plan, ...]
    aside: tuple[Checkpoint, ...] = ()
    replaced: Replaced | None = None
    planned: Mapping[int, frozenset[str]] = field(default_factory=dict)
    floor: int = 0
    stored_ms: int | None = None


@dataclass(frozen=True)
class Fetched:
    """What a start does once large files of the driver are there, or one of them is missing or damaged: for the reason that is given."""

    then: Callable[[], list[Instruction]]
    damaged: Callable[[str], list[Instruction]]


class StartState(Recovery):
    """The memory of a start, without the transitions. `ahead`, `retained`, `timeout_ms`: what the claim to come will say."""

    def __init__(
        self,
        request: ev.StartRequested,
        tickets: Tickets,
        story: Story,
        order: StartOrder | None = None,
        ahead: int = 0,
        retained: int = 1,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        log_kept_ms: int = DAY_MS,
    ) -> None:
        super().__init__(RequestName.START, StartPhase.NEW, StartPhase.CONFIRMING, StartPhase.REFUSED, tickets, story)
        self.beginning: Beginning | None = None
        self._request = request
        self._order = order or StartOrder()
        self._ahead = ahead
        self._retained = retained
        self._timeout_ms = timeout_ms
        self._log_kept_ms = log_kept_ms
        self._rounds = 0
        self._reset()

    def _reset(self) -> None:
        self._bad: dict[CheckpointId, str] = {}
        self._noted: set[CheckpointId] = set()
        self._steps: list[Step] = []
        self._tail = 0
        self._floor = 0
        self._used = -1
        self._last: Claim | None = None
        self._end: End | None = None
        self._entries = {}
        self._outstanding = {}
        self._listed: tuple[CheckpointId, ...] = ()
        self._read: dict[CheckpointId, Checkpoint] = {}
        self._candidates: list[CheckpointId] = []
        self._origin: Checkpoint | None = None
        self._plans: tuple[Plan, ...] = ()
        self._gaps: set[int] = set()
        self._first: int | None = None
        self._claim: Claim | None = None
        self._put: DurablePut | None = None
        """Of the claim, and then of the copy's `_metadata`."""
        self._stored_ms: int | None = None
        self._adopted: Mapping[int, int] = {}
        self._notes: list[str] = []
        self._in_need = False
        """Whether plans are discarded that would run again if they could."""
        self._restoring: ev.Restore | None = None
        self._source: Checkpoint | None = None
        self._same_stream = False
        self._forgotten = False
        self._young: int | None = None
        self._again: dict[CheckpointId, str] = {}
        """Found damaged by earlier runs, and looked at again; why."""
        self._before: dict[int, Entry] = {}
        """What stands before the log's tail, read from there back to the one of that number."""
        self._back = 0
        self._imported: Checkpoint | None = None
        self._aside: tuple[Checkpoint, ...] = ()
        self._fetched: Fetched | None = None

    def _fetch(
        self,
        contents: Iterable[Content | None],
        then: Callable[[], list[Instruction]],
        damaged: Callable[[str], list[Instruction]],
        path: str | None = None,
    ) -> list[Instruction]:
        """Go on once the large ones among these are on the local disk. `path`: what a person chose elsewhere, if they belong to that."""
        handles = tuple(dict.fromkeys(content for content in contents if isinstance(content, FileHandle)))
        if not handles:
            return then()
        self.phase = StartPhase.FETCHING
        self._fetched = Fetched(then, damaged)
        return [self._ask(do.FetchFiles(self.questions.ticket(), handles, path))]

    def _files_fetched(self, event: ev.FilesFetched) -> list[Instruction]:
        self._answered(event.ticket)
        assert self._fetched is not None
        return self._fetched.then() if event.damage is None else self._fetched.damaged(event.damage)

    @property
    def _living(self) -> Claim | None:
        """The last claim, unless the stream was deleted on purpose since."""
        return self._last if self._end is None else None

    @property
    def _in_order(self) -> list[CheckpointId]:
        """What the last run had, newest first, whether it is damaged or not."""
        assert self._last is not None
        return newest_first(self._last, self._listed)

    def _is_retained(self, checkpoint: CheckpointId) -> bool:
        assert self._last is not None
        return is_retained(checkpoint, self._in_order, self._read, self._last.retained)

    @property
    def _next_run(self) -> int:
        return self._last.run + 1 if self._last else 1

    @abstractmethod
    def begin(self, now_ms: int) -> list[Instruction]:
        """From the beginning, or again after somebody else was faster."""


def named(damaged: Mapping[CheckpointId, str]) -> str:
    """Damaged checkpoints with the causes, where known, to be told to a person."""
    causes = {c: f" ({without_way_out(why)})" if why else "" for c, why in damaged.items()}
    return ", ".join(f"run {c.run} epoch {c.epoch}{cause}" for c, cause in sorted(causes.items()))
