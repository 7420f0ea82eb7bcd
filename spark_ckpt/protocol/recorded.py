"""What the log says of the epochs past a checkpoint, and the numbers that may not be used again.

Sinks skip batch ids that they have seen. So plans that are stored run again as planned; and where what ran is not known (at-least-once),
or a person does not want it (`spark.ckpt.restore.plans=DISCARD`), the next epoch gets a number past every number ever used, and the state
of the checkpoint goes on under that number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_ckpt.errors import FormatError
from spark_ckpt.model import Checkpoint, Content
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
class Recorded:
    """`first`: number of the first epoch past the checkpoint. `used`: the highest number that an epoch may have had.

    `numbers`: the entries of the plans -> their epochs. `crossed`: another run went on from a newer checkpoint under new numbers, so that
    the plans do not follow from this one.
    """

    first: int
    plans: tuple[Plan, ...]
    used: int
    crossed: bool
    numbers: Mapping[int, int]


def recorded(
    entries: Mapping[int, Entry], origin: Checkpoint | None, tail: int, last: Claim | None, within: Reach, complete: bool = True
) -> Recorded:
    """Epochs past `origin`, in order; of two plans for one epoch the later counts. `last`: the newest claim, wherever it stands.

    Raises `FormatError` where a plan is missing between others, unless the entries are known not to be `complete`.
    """
    following = origin.id.epoch + 1 if origin else 0
    base, first, crossed = within.claim, following, False
    if base is not None and base.first is not None and base.origin == (origin.id if origin else None):
        first = base.first
    under = base or (last if last is not None and last.claim <= within.after else None)
    ahead = under.ahead if under else 0
    begun = max(following, under.first or 0) if under else following
    plans: dict[int, int] = {}
    reached = begun - 1
    used = reached + ahead
    for number in within.numbers(origin, tail):
        entry = entries.get(number)
        if isinstance(entry, End):
            plans.clear()
            first, crossed, ahead, reached, used = following, False, 0, following - 1, following - 1
        elif isinstance(entry, Claim):
            ahead = entry.ahead
            reached = max(reached, entry.origin.epoch if entry.origin else -1)
            if entry.first is not None:
                if entry.first != first:
                    plans.clear()
                crossed = entry.origin != (origin.id if origin else None)
                first = entry.first
                reached = max(reached, first - 1)
        elif isinstance(entry, Plan) and entry.epoch >= following:
            plans[entry.epoch] = number
            reached = max(reached, entry.epoch)
        used = max(used, reached + ahead)
    if crossed:
        return Recorded(first, (), used, crossed, {})
    found = tuple(entry for _, number in sorted(plans.items()) if isinstance(entry := entries.get(number), Plan))
    if complete:
        _check_unbroken(found, first)
    return Recorded(first, found, used, crossed, {number: epoch for epoch, number in plans.items()})


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


def _check_unbroken(plans: Iterable[Plan], first: int) -> None:
    for expected, plan in enumerate(plans, first):
        if plan.epoch != expected:
            raise FormatError(
                f"the plan of epoch {expected} is not in the log, although epoch {plan.epoch} was planned; the log is damaged"
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
