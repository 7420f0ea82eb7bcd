"""What the log says of the epochs past a checkpoint, and the numbers that may not be used again.

Sinks skip batch ids that they have seen. So plans that are stored run again as planned; and where what ran is not known (at-least-once),
or a person does not want it (`spark.ckpt.restore.plans=DISCARD`), the next epoch gets a number past every number ever used, and the state
of the checkpoint goes on under that number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_ckpt.errors import FormatError
from spark_ckpt.model import Checkpoint, Content
from spark_ckpt.protocol.driver_files import commits_file, offsets_file
from spark_ckpt.protocol.entries import Claim, End, Entry, Plan

_NOTHING_COMMITTED = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}'


@dataclass(frozen=True)
class Recorded:
    """`first`: number of the first epoch past the checkpoint. `used`: the highest number that an epoch may have had.

    `crossed`: another run went on from a newer checkpoint under new numbers, so that the plans do not follow from this one.
    """

    first: int
    plans: tuple[Plan, ...]
    used: int
    crossed: bool


def recorded(
    entries: Mapping[int, Entry], origin: Checkpoint | None, tail: int, last: Claim | None, complete: bool = True
) -> Recorded:
    """Epochs past `origin`, in order; of two plans for one epoch the later counts. `last`: the newest claim, wherever it stands.

    Raises `FormatError` where a plan is missing between others, unless the entries are known not to be `complete`.
    """
    following = origin.id.epoch + 1 if origin else 0
    first, crossed = following, False
    plans: dict[int, Plan] = {}
    used = following - 1
    claims = {last.claim: last} if last else {}
    highest: dict[int, int] = {}
    for number in range(origin.log + 1 if origin else 1, tail + 1):
        entry = entries.get(number)
        if isinstance(entry, End):
            plans.clear()
            highest.clear()
            claims.clear()
            first, crossed, used = following, False, following - 1
        elif isinstance(entry, Claim):
            claims[number] = entry
            if entry.first is not None:
                if entry.first != first:
                    plans.clear()
                crossed = entry.origin != (origin.id if origin else None)
                first = entry.first
        elif isinstance(entry, Plan) and entry.epoch >= following:
            plans[entry.epoch] = entry
            highest[entry.claim] = max(entry.epoch, highest.get(entry.claim, -1))
    for number, claim in claims.items():
        begun = max(following, claim.first or 0)
        used = max(used, highest.get(number, begun - 1) + claim.ahead)
    used = max([used, *highest.values()])
    if crossed:
        return Recorded(first, (), used, crossed)
    return Recorded(first, _unbroken(plans, first) if complete else tuple(plans.values()), used, crossed)


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


def _unbroken(plans: Mapping[int, Plan], first: int) -> tuple[Plan, ...]:
    ordered = [plans[epoch] for epoch in sorted(plans)]
    for expected, plan in enumerate(ordered, first):
        if plan.epoch != expected:
            raise FormatError(
                f"the plan of epoch {expected} is not in the log, although epoch {plan.epoch} was planned; the log is damaged"
            )
    return tuple(ordered)


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
