"""What the log says of the epochs past a checkpoint, and the numbers that may not be used again.

Sinks skip batch ids that they have seen. So plans that are stored run again as planned; and where what ran is not known (at-least-once),
or a person does not want it (`spark.ckpt.restore.plans=DISCARD`), the next epoch gets a number past every number ever used, and the state
of the checkpoint goes on under that number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spark_ckpt.errors import FormatError
from spark_ckpt.model import Checkpoint, CheckpointId, Content
from spark_ckpt.protocol.driver_files import commits_file, offsets_file
from spark_ckpt.protocol.entries import Claim, End, Entry, Plan

_NOTHING_COMMITTED = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}'


@dataclass(frozen=True)
class Reach:
    """Which entries tell what was planned past a checkpoint: those that `claim` adopts, and those behind number `after`.

    The last claim has adopted all that was planned past its origin, however often the stream was started before; and a checkpoint notes an
    entry of its run behind which its run has planned all that it had not adopted.
    """

    claim: Claim | None
    after: int

    def numbers(self, origin: Checkpoint | None, tail: int) -> list[int]:
        adopted = self.claim.adopted_past(origin.id.epoch if origin else -1) if self.claim else ()
        return [*(n for n in adopted if n <= self.after), *range(self.after + 1, tail + 1)]


def reach(origin: Checkpoint | None, last: Claim | None, its_claim: Entry | None) -> Reach:
    """`its_claim`: the entry that `origin.claim` names. Before version 3 nothing was adopted: what ran again had been appended again."""
    if last is not None and last.origin == (origin.id if origin else None) and last.adopts is not None:
        return Reach(last, last.claim)
    return Reach(its_claim if isinstance(its_claim, Claim) else None, origin.log if origin else 0)


@dataclass(frozen=True)
class CopyOf:
    """What the origin of a restore is a copy of: the checkpoint that the savepoint was made of, and where it is."""

    id: CheckpointId
    path: str


@dataclass(frozen=True)
class PlannedBefore:
    """`first`: number of the first epoch past the checkpoint. `used`: the highest number that an epoch may have had.

    `numbers`: the entries of the plans -> their epochs. `crossed`: another run went on from a newer checkpoint under new numbers, so that
    the plans do not follow from this one. `anew`: the same, for the stream was deleted, and began again with something else.
    `missing`: an epoch whose plan is not there, although one for a later epoch is. `records`: by entry, those of real-time epochs;
    `real_time`: some of these count past the checkpoint, so nothing runs again.
    """

    first: int
    plans: tuple[Plan, ...]
    used: int
    crossed: bool
    anew: bool
    numbers: Mapping[int, int]
    missing: int | None = None
    records: Mapping[int, Plan] = field(default_factory=dict)
    real_time: bool = False

    @property
    def unplanned(self) -> int:
        """Number of the first epoch that is not planned."""
        return self.plans[-1].epoch + 1 if self.plans else self.first


def copied_own(claim: Claim) -> CheckpointId | None:
    """Of which of the stream's own checkpoints the claim begins with a copy that it makes itself, since the query had changed; None: of
    none. Rule: such a claim inherits both. What a person chose, now or for an earlier run, is told by `restored`."""
    copy, chosen = claim.copy, claim.restored
    if copy is None or (chosen is not None and chosen.imported == copy):
        return None
    return max((c for c in claim.inherits if c.epoch == copy.epoch and c != copy), default=None)


class _Line:
    """What follows a checkpoint, told by the log entry by entry.

    The same state goes by several names: a savepoint is copied by each restore, and such a copy may be saved and restored again. `_same`
    are those known to be the checkpoint itself. A claim that begins from one of them knew the whole log before it, so what it adopts is
    all that counts of that; also where the stream was deleted in between.
    """

    def __init__(self, origin: Checkpoint | None, within: Reach, last: Claim | None, copied: CopyOf | None) -> None:
        self._following = origin.id.epoch + 1 if origin else 0
        self._path = copied.path if copied else None
        self._same = {origin.id if origin else None, *([copied.id] if copied else [])}
        base = within.claim
        if base is not None and base.origin is not None and origin is not None and origin.log == origin.claim == base.claim:
            # What the run made of a plan that it had adopted names its claim too, but is of a later epoch.
            self._same |= {base.origin} if base.origin.epoch == origin.id.epoch else set()
        begins = base is not None and base.first is not None and base.origin in self._same
        self.first = base.first if base is not None and base.first is not None and begins else self._following
        under = base or (last if last is not None and last.claim <= within.after else None)
        self._may_be_ahead = origin is not None
        """Without a checkpoint no run was: epochs run before their plans are stored only once the run has completed one."""
        self._ahead = under.ahead if under and self._may_be_ahead else 0
        self._reached = (max(self._following, under.first or 0) if under else self._following) - 1
        self.used = self._reached + self._ahead
        self.crossed = self.anew = False
        self.real_time = False
        self.records: dict[int, Plan] = {}
        self._after = within.after
        self._plans: dict[int, int] = {}
        self._buried: dict[int, int] | None = None
        """What was planned when the stream was deleted, until somebody claims it again."""

    @property
    def plans(self) -> dict[int, int]:
        """Epoch -> log entry."""
        return self._plans if self._buried is None else self._buried

    def meets(self, number: int, entry: Entry | None) -> None:
        if isinstance(entry, End):
            self._end(entry)
        elif isinstance(entry, Claim):
            self._claim(entry)
        elif isinstance(entry, Plan) and entry.epoch >= self._following and self._buried is None:
            self._reached = max(self._reached, entry.epoch)
            if entry.real_time:
                self._record(number, entry)
            else:
                self._plans[entry.epoch] = number
        self.used = max(self.used, self._reached + self._ahead)

    def _record(self, number: int, entry: Plan) -> None:
        """Rule: what a real-time epoch has read never runs again, nor what was planned before it. One that a claim adopts lies behind."""
        self.records[number] = entry
        self.real_time = self.real_time or number > self._after

    def _end(self, entry: End) -> None:
        if self._buried is None:
            self._buried, self._plans = self._plans, {}
        self._ahead = 0
        self.used = max(self.used, entry.used if entry.used is not None else -1)

    def _claim(self, entry: Claim) -> None:
        restored = entry.restored
        imported = restored.imported if restored is not None and restored.path == self._path else None
        if imported is not None and imported.epoch == self._following - 1:  # else something else was there then
            self._same.add(imported)
        if (own := copied_own(entry)) is not None and own in self._same:
            self._same.add(entry.origin)
        self._ahead = entry.ahead if self._may_be_ahead else 0
        self._reached = max(self._reached, entry.origin.epoch if entry.origin else -1, (entry.first or 0) - 1)
        adopted = None if entry.adopts is None else {epoch: n for n, epoch in entry.adopted_past(self._following - 1).items()}
        if entry.origin in self._same:
            self._begins_again(entry, adopted)
        else:
            self._goes_on(entry, adopted or {})
        self._reached = max([self._reached, *self._plans])
        self._buried = None

    def _begins_again(self, entry: Claim, adopted: dict[int, int] | None) -> None:
        """Before version 3 of the log's entries a claim said nothing of plans, and each was appended again behind it."""
        if adopted is not None:
            self._plans = adopted
        elif entry.first is not None and entry.first != self.first:
            self._plans = {}
        elif entry.restored is not None and self._buried is not None:
            self._plans = self._buried
        if adopted is not None or entry.first is not None:
            self.first = self._following if entry.first is None else entry.first
        self.crossed = self.anew = self.real_time = False

    def _goes_on(self, entry: Claim, adopted: dict[int, int]) -> None:
        """From another checkpoint. Past an end that is one on this line if it adopts what was planned on it."""
        if self._buried is not None:
            buried, here = self._buried, entry.origin.epoch if entry.origin else -1
            if entry.restored is not None and adopted and all(buried.get(epoch) == n for epoch, n in adopted.items()):
                self._plans = {epoch: n for epoch, n in buried.items() if epoch <= here} | adopted
            else:
                self.anew = True
        if entry.first is not None:
            if entry.first != self.first:
                self._plans = {}
            self.crossed, self.first = True, entry.first


def planned_before(
    entries: Mapping[int, Entry],
    origin: Checkpoint | None,
    tail: int,
    last: Claim | None,
    within: Reach,
    copied: CopyOf | None = None,
) -> PlannedBefore:
    """Epochs past `origin`, in order; of two plans for one epoch the later counts. `last`: the newest claim, wherever it stands."""
    line = _Line(origin, within, last, copied)
    for number in within.numbers(origin, tail):
        line.meets(number, entries.get(number))
    if line.crossed or line.anew:
        return PlannedBefore(line.first, (), line.used, line.crossed, line.anew, {})
    if line.real_time:
        return PlannedBefore(line.first, (), line.used, False, False, {}, records=line.records, real_time=True)
    found = tuple(entry for _, number in sorted(line.plans.items()) if isinstance(entry := entries.get(number), Plan))
    if not found and origin is not None and line.first == origin.id.epoch + 1:
        found = begun_by_stock(origin)
    missing = next((expected for expected, plan in enumerate(found, line.first) if plan.epoch != expected), None)
    numbers = {number: epoch for epoch, number in line.plans.items()}
    return PlannedBefore(line.first, found, line.used, False, False, numbers, missing, line.records)


def begun_by_stock(origin: Checkpoint) -> tuple[Plan, ...]:
    """The epoch after an imported checkpoint, if stock Spark had begun it. No log has its plan until a run of ours has planned it."""
    planned = origin.imported.planned if origin.imported is not None else None
    return () if planned is None else (Plan(origin.claim, origin.id.run, origin.id.epoch + 1, planned),)


def behind(origin: Checkpoint, used: int) -> tuple[int, tuple[Plan, ...]]:
    """Of a stream that has used numbers up to `used`, -1 for none, and goes on from another one's `origin`: its first epoch, and what runs
    again. Where that number is not the origin's next one, what stock Spark had begun is read anew under it."""
    following = origin.id.epoch + 1
    return (following, begun_by_stock(origin)) if used < following else (used + 1, ())


def does_not_follow(found: PlannedBefore, origin: CheckpointId, noted: int) -> str | None:
    """Why what was planned cannot run again from a checkpoint; None: it can. `noted`: the highest number that the last claim knew to be
    used, -1 for none. What has been read says what ran under each number up to there; or it would be given to other rows, which sinks
    skip."""
    at = f"checkpoint run {origin.run} epoch {origin.epoch}"
    if found.anew:
        return f"the stream was deleted and began anew after {at} was made, so what followed that cannot run again as planned"
    if found.crossed:
        return f"epochs past {at} went on under new numbers from {found.first} on, and cannot run again as planned"
    if found.real_time:
        return f"what ran after {at} ran in real time, and cannot run again as planned"
    if found.unplanned <= noted:
        return (
            f"epochs up to {noted} may have run after {at}, and from {found.unplanned} on it is not known what they were, so they cannot "
            "run again as planned"
        )
    return None


def takes_its_claim(origin: Checkpoint, tail: int, floor: int) -> bool:
    """Whether a start from the origin has to know what the claim under which it was made has adopted. Of a savepoint which goes on from
    none of that, the claim may be gone, like any that is not in force at the log's `floor`."""
    return 0 < origin.claim <= tail and (origin.log_from is not None or origin.claim >= floor)


def past_all_plans(
    origin: Checkpoint, listed: Collection[CheckpointId], entries: Mapping[int, Entry], tail: int, last: Claim
) -> CheckpointId | None:
    """A checkpoint of the last run past all plans in the log: there is none without a plan, so the log's end is missing.

    Not the copy that the run has begun with, of a savepoint or of what another query had left: the plan of that is where it was made.
    `listed`: the last run's.
    """
    if origin.id in listed and origin.log > tail:
        return origin.id
    plans = [entry.epoch for entry in entries.values() if isinstance(entry, Plan) and entry.run == last.run]
    planned = max([origin.id.epoch, *plans, *last.adopted_past(-1).values()])
    return max((c for c in listed if c.epoch > planned and c != last.copy), default=None)


def numbers_known(gaps: Collection[int], entries: Mapping[int, Entry], last: Claim) -> bool:
    """With entries missing, and nothing to run again: whether the last claim says what was used before it, or its own plans go up to one
    behind what is missing."""
    own = max((n for n, entry in entries.items() if isinstance(entry, Plan) and entry.claim == last.claim), default=0)
    noted = last.claim if last.used is not None else 0
    return all(n < max(own, noted) for n in gaps)


def ever_used(entries: Mapping[int, Entry]) -> int:
    """The highest number that an epoch may have had, by a whole log that was written before `End` noted it."""
    used, highest, ahead = -1, -1, 0
    for _, entry in sorted(entries.items()):
        if isinstance(entry, Claim):
            highest, ahead = max(highest, (entry.first or 0) - 1), entry.ahead
        elif isinstance(entry, Plan):
            highest = max(highest, entry.epoch)
        used = max(used, highest + ahead)
    return used


def check_unbroken(found: PlannedBefore, origin: CheckpointId | None) -> None:
    """Raises `FormatError` where a plan is missing between others: what ran then is not known."""
    if found.missing is None:
        return
    later = next(plan.epoch for plan in found.plans if plan.epoch > found.missing)
    way_out = "start with a new checkpointLocation and a new output path"
    if origin is not None:
        way_out = (
            f"go on from checkpoint run {origin.run} epoch {origin.epoch} with spark.ckpt.restore.path and "
            "spark.ckpt.restore.plans=DISCARD: what followed runs anew under new numbers, and sinks may get its rows twice"
        )
    raise FormatError(
        f"the plan of epoch {found.missing} is not in the log, although epoch {later} was planned; the log is damaged: put it back, or "
        f"{way_out}"
    )


def driver_files_of(checkpoint: Checkpoint | None, first: int, sources: int) -> dict[str, Content]:
    """The driver's files with which epoch `first` follows the checkpoint: under a new number, its `offsets` and `commits` move there.

    Spark reads those of the two epochs before (`MicroBatchExecution.populateStartOffsets`); epoch 0 stands for both. Without a checkpoint
    and with numbers that go on, those are epochs of which none of so many `sources` has an offset, and no store a state.
    """
    if checkpoint is None:
        before = range(max(0, first - 2), first)
        nothing = b"v1\n" + b"\n-" * sources
        never: dict[str, Content] = {offsets_file(n): nothing for n in before}
        return never | {commits_file(n): _NOTHING_COMMITTED for n in before}
    epoch = checkpoint.id.epoch
    if first == epoch + 1:
        return dict(checkpoint.files)
    files = {path: content for path, content in checkpoint.files.items() if not path.startswith(("offsets/", "commits/"))}
    for back in (0, 1):
        for named in (offsets_file, commits_file):
            content = checkpoint.files.get(named(epoch - back), checkpoint.files.get(named(epoch)))
            if content is not None:
                files[named(first - 1 - back)] = content
    return files
