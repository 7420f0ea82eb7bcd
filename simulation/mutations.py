"""The protocol with one rule left out, for each rule: the simulation must then fail (mutation testing)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from simulation import mutant_runs as runs
from simulation import mutant_starts as starts
from simulation import mutant_trims as trims
from simulation.faults import KEPT
from simulation.world import OverwritingWorld, World
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.run import Parts
from spark_ckpt.protocol.start.start import StartParts
from spark_ckpt.protocol.stream import Stream


def _as_it_is(outcome: Outcome) -> Outcome:
    return outcome


class CollectOrder(Enum):
    """What a collector of garbage reads, after the claim."""

    RIGHT = "RIGHT"
    """The checkpoints that the claim keeps, those of its own run, again if one is gone; then whether the claim is still the last."""
    CLAIM_ONCE = "CLAIM_ONCE"
    """Wrong: a successor may have deleted both kinds meanwhile, and what it needs of older runs is named by nothing that was read."""
    OWN_FIRST = "OWN_FIRST"
    """Wrong: a kept one may be superseded and deleted after the listing, and its objects are named by nothing that was read."""
    UNREADABLE = "UNREADABLE"
    """Wrong: what a kept checkpoint names is not known while its `_metadata` cannot be read."""
    PLANS_LAST = "PLANS_LAST"
    """Wrong: a checkpoint may complete after the run's own were read, and old plans go before the log is read: both name one object."""
    UNSETTLED = "UNSETTLED"
    """Wrong: what the living run has stored since its newest checkpoint was triggered is named by one to come."""


@dataclass(frozen=True)
class Variant:
    """What is simulated: the real protocol, or a mutant. `faults`, `settings`: not left to the seed, so that a rule soon matters."""

    parts: Parts = field(default_factory=Parts)
    stream: type[Stream] = Stream
    world: type[World] = World
    settle: Callable[[Outcome], Outcome] = _as_it_is
    compare: bool = True
    """Is what executors load compared with its checksum?"""
    handles_told: bool = True
    """Is an agent that takes another one's place told what was acknowledged, and under which objects?"""
    ends_between: bool = True
    """Does a query end as asked when what was planned as micro-batches has run, and real time would follow?"""
    collect: CollectOrder = CollectOrder.RIGHT
    faults: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def _unknown_is_stored(outcome: Outcome) -> Outcome:
    return Outcome.STORED if outcome is Outcome.UNKNOWN else outcome


class Mutation(Enum):
    """By the rule that it leaves out."""

    START_ORDER = "the tail is read before the checkpoints are listed"
    DELETE_AFTER_APPEND = "nothing is deleted before an own append that follows the completion"
    PUT_IF_ABSENT = "an entry that exists is not overwritten"
    SPARE_NAMED = "a deletion spares what other checkpoints name"
    SPARE_DROPPED = "a deletion spares what dropped checkpoints name that are not gone yet"
    SPARE_PLANNED = "a deletion spares what plans in the log name"
    RERUN_PLANNED = "planned epochs run again as planned"
    ADOPT = "a claim names the plans that run again"
    READ_BACK = "an unknown outcome is read back, not taken for stored"
    DELETE_NOTHING_UNKNOWN = "after an unknown outcome nothing is deleted"
    WAIT_FOR_ACKS = "a checkpoint is complete when all its acks are in"
    DELETE_ISSUED_AFTER = "nothing is deleted on an append that was issued before the completion was known"
    UNCERTAIN_KEPT = "a checkpoint that is given up while its _metadata is under way keeps its objects until it is known"
    DISCARD_LATER = "what aborted and losing attempts uploaded stays until a later checkpoint completes"
    BASES_KEPT = "a checkpoint that tasks have loaded from stays until one that was triggered after them completes"
    BASES_TAKEN_OVER = "a coordinator that takes another one's place lets nothing go that tasks may have loaded from before"
    HANDLES_TOLD = "an agent that takes another one's place goes on with the objects that were acknowledged"
    OVERTAKEN_WAITED_FOR = "nothing goes while the newest checkpoint has overtaken one in the making"
    NEWEST_BY_EPOCH = "a checkpoint that completes after a newer one is not the newest"
    AHEAD_COUNTED = "numbers that may have been used without a plan are not used again"
    FIRST_VOIDS = "plans before a claim with new numbers are void"
    CARRIED_VOIDS_NOT = "a claim that carries new numbers on voids no plans"
    AHEAD_WHEN_KNOWN = "no epoch runs ahead of its plan before every successor finds a checkpoint"
    PLAN_BEFORE_METADATA = "a checkpoint is stored after the plan of its epoch"
    OLD_VERSION = "state that goes on under a new number is loaded under its old one"
    GO_BACK_OWN = "a query goes back in place only while the stream is its own"
    CHOOSE_RETAINED = "a person can choose only what the last run retains"
    TIMED_FROM_SEAL = "the time-out of a checkpoint is counted from the end of its epoch"
    LONG_BRIDGED = "while an epoch runs for long, the newest finished one becomes a checkpoint"
    FILES_OF_ITS_END = "a checkpoint of a finished epoch holds the driver's files as they were at its end"
    STATES_OF_ITS_END = "a checkpoint of a finished epoch holds the states that hooks gave at its end"
    TOLD_WHEN_DURABLE = "hooks are told of a checkpoint when it is durable"
    SEALS_RESENT = "a coordinator that takes another one's place is told what went with a seal and is in no plan yet"
    ORIGIN_VERIFIED = "a start looks whether all is there that its origin names"
    LOADED_COMPARED = "what executors load is compared with its checksum"
    NOTED_AGAIN = "what was found damaged is looked at again when nothing else is left"
    COLLECT_READABLE = "a collector of garbage deletes nothing while a checkpoint that is kept cannot be read"
    NUMBERS_GO_ON = "a stream that was deleted begins anew behind every number that it had used"
    GONE_AT_LAST = "what a deleted stream leaves goes when every put of _metadata is answered"
    COLLECT_KEPT_FIRST = "a collector of garbage reads the kept checkpoints before it lists the run's own"
    COLLECT_SETTLED = "a collector takes for garbage of a living run only what was stored before the epoch of a completed checkpoint ran"
    COLLECT_CLAIM_AGAIN = "a collector of garbage looks whether the claim is still the last when it has read the checkpoints"
    COLLECT_AGAIN = "a collector of garbage reads the checkpoints once more when it has read the log"
    A_DAY = "an entry of the log stays for a day"
    YOUNG_KNOWN = "a large file of the driver goes when no entry of the log names it, also of those below the floor"
    CLAIM_STAYS = "the claim under which the entry at the floor was written stays"
    ADOPTED_STAY = "what a claim has adopted stays until its run has passed over it"
    APPEND_NOT_IN_HOLE = "a run that slept looks past what it has appended"
    CLAIM_NOT_IN_HOLE = "a start looks past its claim"
    LOST_WHEN_ALL_REPORTED = "state is lost only when each executor has reported since the question that it does not hold it"
    LOST_WHEN_REPORTED_TWICE = "a report that may have been made before the question does not count"
    ALL_THAT_HAD_ENDED = "a request for a checkpoint is answered only by one that holds all that had ended"
    DUE_UNASKED = "what only a checkpoint frees makes one due, also where else only people ask for them"
    LEFT_LOOKED_FOR = "before state is lost, acknowledgements are looked for that agents of dead executors have left"
    BEGINS_EMPTY = "an operator that is new begins empty in the first epoch, however often that runs"
    BESIDE_STATE = "what a plan says of operators is not taken when it runs again"
    RECORDS_VOID = "what a real-time epoch has read never runs again"
    RUNNING_COUNTED = "the number of a real-time epoch that was running is not used again"
    BEGUN_IS_LOGGED = "until every successor finds a checkpoint, the log says of a real-time epoch that it begins"
    BEGINNING_ADOPTED = "a claim names what says where the sources of real-time epochs began"
    ENDS_AS_ASKED = "a query whose end was asked for ends with the answer, also where micro-batches become real time"
    PLANNED_FIRST = "what was planned as micro-batches runs so before a run in real time"


INTERVAL_ONLY = frozenset(
    {
        Mutation.DELETE_ISSUED_AFTER,
        Mutation.SPARE_DROPPED,
        Mutation.UNCERTAIN_KEPT,
        Mutation.DISCARD_LATER,
        Mutation.BASES_KEPT,
        Mutation.BASES_TAKEN_OVER,
        Mutation.HANDLES_TOLD,
        Mutation.OVERTAKEN_WAITED_FOR,
        Mutation.NEWEST_BY_EPOCH,
        Mutation.GO_BACK_OWN,
        Mutation.TIMED_FROM_SEAL,
        Mutation.LONG_BRIDGED,
        Mutation.STATES_OF_ITS_END,
        Mutation.SEALS_RESENT,
        Mutation.ADOPTED_STAY,
        Mutation.LOST_WHEN_ALL_REPORTED,
        Mutation.LOST_WHEN_REPORTED_TWICE,
        Mutation.ALL_THAT_HAD_ENDED,
        Mutation.DUE_UNASKED,
        Mutation.LEFT_LOOKED_FOR,
    }
)
"""What only the interval mode can show: in the other one an epoch's append is issued when the checkpoint of the one before is complete."""


AT_LEAST_ONCE_ONLY = frozenset(
    {
        Mutation.AHEAD_COUNTED,
        Mutation.FIRST_VOIDS,
        Mutation.CARRIED_VOIDS_NOT,
        Mutation.AHEAD_WHEN_KNOWN,
        Mutation.PLAN_BEFORE_METADATA,
        Mutation.OLD_VERSION,
        Mutation.FILES_OF_ITS_END,
    }
)
"""What only at-least-once can show: where a plan is stored while its epoch's tasks run, and input runs again under new numbers."""


REAL_TIME_ONLY = frozenset(
    {
        Mutation.RECORDS_VOID,
        Mutation.RUNNING_COUNTED,
        Mutation.BEGUN_IS_LOGGED,
        Mutation.BEGINNING_ADOPTED,
        Mutation.PLANNED_FIRST,
        Mutation.ENDS_AS_ASKED,
    }
)
"""What only real time can show."""


_STEADY = {"damage": 0, "crash": 0, "sleep": 0, "stop": 0, "task_failure": 0}
_A_NIGHT = {"log_kept_ms": KEPT}
_SLEEPERS = {**_STEADY, "sleep": 0.01, "rival": 0.5, "restore": 0, "outage": 0, "coordinator_crash": 0, "executor_loss": 0}
_SLOW_ANSWERS = {**_STEADY, "answer_lost": 0.4, "ack_lost": 0.5, "rival": 1}
_SLOW_ACKS = {**_STEADY, "answer_lost": 0.2, "ack_lost": 0.8, "rival": 0, "coordinator_crash": 0, "executor_loss": 0}
_RIVALS = {**_STEADY, "coordinator_crash": 0, "outage": 0, "read_failed": 0, "slow": 0.05, "restore": 0, "rival": 1}
_CHOICES = {"restore": 1, "rival": 0.4, "sleep": 0.03, "slow": 0.1, "stop": 0, "crash": 0.003}
_DAMAGE = {"damage": 0.3}
_REPLACED = {**_STEADY, "coordinator_crash": 0.02, "outage": 0}
_MOVING = {**_STEADY, "moved": 0.3, "slow": 0.3}
_DYING = {**_STEADY, "executor_loss": 0.5, "moved": 0.3}
_AGENTS = {**_STEADY, "agent_restart": 0.15, "ack_lost": 0.5, "rival": 0, "restore": 0, "executor_loss": 0, "outage": 0, "decline": 0}
_ANSWERED = {"answer_lost": 0, "request_lost": 0, "late": 0, "put_failed": 0, "read_failed": 0, "slow": 0, "long": 0, "gc": 0, "ask": 0}
_AGENTS_ALONE = {**_AGENTS, **_ANSWERED, "agent_restart": 0.5, "ack_lost": 0.9, "coordinator_crash": 0.02, "moved": 0, "losing": 0}
_ONE_AT_A_TIME = {"interval_ms": 40, "max_concurrent": 1, "min_pause_ms": 0, "timeout_ms": 600, "tolerable_failures": 10}
_SOON_OVER = {**_STEADY, "crash": 0.04, "rival": 1, "restore": 0}
"""Many a run ends before it has a checkpoint."""
_OFTEN = {"interval_ms": 30, "max_concurrent": 3}
_ONE = {**_OFTEN, "retained": 1}
_IN_A_HURRY = {**_OFTEN, "timeout_ms": 150, "tolerable_failures": 10}


def mutated(mutation: Mutation) -> Variant:
    """A world in which one rule is not kept."""
    return {
        Mutation.START_ORDER: Variant(parts=Parts(start=StartParts(order=starts.TailTwice))),
        Mutation.DELETE_AFTER_APPEND: Variant(parts=Parts(checkpoints=runs.AtCompletion)),
        Mutation.PUT_IF_ABSENT: Variant(world=OverwritingWorld),
        Mutation.SPARE_DROPPED: Variant(
            parts=Parts(deletions=runs.SparingRetained), faults={**_SLOW_ANSWERS, "restore": 0}, settings=_ONE
        ),
        Mutation.SPARE_NAMED: Variant(parts=Parts(deletions=runs.SparingNothing)),
        Mutation.SPARE_PLANNED: Variant(parts=Parts(deletions=runs.SparingNoPlan)),
        Mutation.RERUN_PLANNED: Variant(parts=Parts(start=StartParts(plans=starts.WithoutPlans))),
        Mutation.ADOPT: Variant(parts=Parts(start=StartParts(plans=starts.WithoutAdopting))),
        Mutation.READ_BACK: Variant(settle=_unknown_is_stored),
        Mutation.DELETE_NOTHING_UNKNOWN: Variant(parts=Parts(checkpoints=runs.UnknownFails)),
        Mutation.WAIT_FOR_ACKS: Variant(parts=Parts(checkpoints=runs.WithoutAcks)),
        Mutation.DELETE_ISSUED_AFTER: Variant(
            parts=Parts(deletions=runs.OnAnyAppend), faults={**_SLOW_ANSWERS, "restore": 0}, settings={**_OFTEN, "retained": 1}
        ),
        Mutation.UNCERTAIN_KEPT: Variant(parts=Parts(checkpoints=runs.GivenUpAtOnce), faults=_SLOW_ACKS, settings=_IN_A_HURRY),
        Mutation.DISCARD_LATER: Variant(parts=Parts(subsumption=runs.DiscardingAtOnce)),
        Mutation.BASES_KEPT: Variant(parts=Parts(subsumption=runs.ForgettingBases), faults=_AGENTS, settings=_ONE),
        Mutation.BASES_TAKEN_OVER: Variant(
            parts=Parts(subsumption=runs.ForgettingOthersBases), faults=_AGENTS_ALONE, settings={**_ONE, **_ONE_AT_A_TIME}
        ),
        Mutation.HANDLES_TOLD: Variant(handles_told=False, faults=_AGENTS, settings=_ONE),
        Mutation.OVERTAKEN_WAITED_FOR: Variant(
            parts=Parts(subsumption=runs.ForgettingOvertaken), faults={**_AGENTS, "ask": 1}, settings=_ONE
        ),
        Mutation.NEWEST_BY_EPOCH: Variant(
            parts=Parts(store=runs.InOrderOfCompletion), faults={**_STEADY, "answer_lost": 0.4}, settings=_OFTEN
        ),
        Mutation.AHEAD_COUNTED: Variant(parts=Parts(start=StartParts(plans=starts.CountingPlans))),
        Mutation.FIRST_VOIDS: Variant(parts=Parts(start=StartParts(plans=starts.VoidingNothing))),
        Mutation.CARRIED_VOIDS_NOT: Variant(
            parts=Parts(start=StartParts(plans=starts.VoidingTwice)), faults={"rival": 1, "crash": 0.01, "sleep": 0.02}
        ),
        Mutation.AHEAD_WHEN_KNOWN: Variant(
            parts=Parts(log=runs.AheadAtOnce), faults=_RIVALS, settings={**_OFTEN, "interval_ms": 10, "ahead": 5}
        ),
        Mutation.PLAN_BEFORE_METADATA: Variant(parts=Parts(checkpoints=runs.WithoutItsPlan)),
        Mutation.BEGINS_EMPTY: Variant(parts=Parts(epoch=runs.BeginningNowhere)),
        Mutation.BESIDE_STATE: Variant(parts=Parts(start=StartParts(plans=starts.WithOldOperators))),
        Mutation.OLD_VERSION: Variant(parts=Parts(epoch=runs.UnderItsNumber)),
        Mutation.GO_BACK_OWN: Variant(
            parts=Parts(start=StartParts(admission=starts.TakingItBack)),
            faults={**_STEADY, "sleep": 0.005, "rival": 1, "executor_loss": 0.15},
        ),
        Mutation.CHOOSE_RETAINED: Variant(
            parts=Parts(start=StartParts(candidates=starts.ChoosingAny)), faults=_CHOICES, settings={"retained": 1}
        ),
        Mutation.TIMED_FROM_SEAL: Variant(parts=Parts(checkpoints=runs.TimedFromItsTrigger)),
        Mutation.LONG_BRIDGED: Variant(parts=Parts(epoch=runs.WaitingForItsEnd)),
        Mutation.FILES_OF_ITS_END: Variant(parts=Parts(checkpoints=runs.WithFilesOfNow)),
        Mutation.STATES_OF_ITS_END: Variant(parts=Parts(checkpoints=runs.WithStatesOfNow), settings=_OFTEN),
        Mutation.TOLD_WHEN_DURABLE: Variant(parts=Parts(checkpoints=runs.TellingAtTheSeal)),
        Mutation.SEALS_RESENT: Variant(stream=runs.WithoutSeals, faults=_REPLACED),
        Mutation.ORIGIN_VERIFIED: Variant(parts=Parts(start=StartParts(candidates=starts.TrustingObjects)), faults=_DAMAGE),
        Mutation.LOADED_COMPARED: Variant(compare=False, faults=_DAMAGE),
        Mutation.NOTED_AGAIN: Variant(parts=Parts(start=StartParts(candidates=starts.OnceBad)), faults=_DAMAGE),
        Mutation.COLLECT_READABLE: Variant(collect=CollectOrder.UNREADABLE, faults={**_DAMAGE, "gc": 1}),
        Mutation.NUMBERS_GO_ON: Variant(parts=Parts(start=StartParts(plans=starts.NumbersAnew))),
        Mutation.GONE_AT_LAST: Variant(parts=Parts(ending=runs.GoneAtOnce)),
        Mutation.COLLECT_SETTLED: Variant(collect=CollectOrder.UNSETTLED, faults={"gc": 1}),
        Mutation.COLLECT_AGAIN: Variant(collect=CollectOrder.PLANS_LAST, faults={"gc": 1}, settings=_A_NIGHT),
        Mutation.A_DAY: Variant(parts=Parts(trim=trims.TakingYoung), faults=_SLEEPERS, settings={"log_kept_ms": 3 * KEPT}),
        Mutation.YOUNG_KNOWN: Variant(parts=Parts(trim=trims.KnowingFromTheFloor), settings=_A_NIGHT),
        Mutation.CLAIM_STAYS: Variant(parts=Parts(trim=trims.TakingTheClaim), settings=_A_NIGHT),
        Mutation.ADOPTED_STAY: Variant(parts=Parts(checkpoints=runs.ForgettingAdopted), settings=_A_NIGHT),
        Mutation.APPEND_NOT_IN_HOLE: Variant(
            parts=Parts(log=runs.SureOfItsAppends),
            faults=_SLEEPERS,
            settings=_A_NIGHT,
        ),
        Mutation.CLAIM_NOT_IN_HOLE: Variant(
            parts=Parts(start=StartParts(claiming=trims.SureOfItsClaim)), faults=_SLEEPERS, settings=_A_NIGHT
        ),
        Mutation.LOST_WHEN_ALL_REPORTED: Variant(parts=Parts(handover=runs.LostWhenNobodyReportsIt), faults=_MOVING),
        Mutation.LOST_WHEN_REPORTED_TWICE: Variant(parts=Parts(handover=runs.LostAfterOneReport), faults=_MOVING),
        Mutation.ALL_THAT_HAD_ENDED: Variant(parts=Parts(savepoints=runs.AnsweringWithAny), faults={"demand": 0.5}),
        Mutation.DUE_UNASKED: Variant(
            parts=Parts(policy=runs.WhenAskedOnly), settings={"interval_ms": None, "min_pause_ms": 0, "most_behind": 6}
        ),
        Mutation.RECORDS_VOID: Variant(parts=Parts(start=StartParts(plans=starts.TakingRecordsForPlans)), faults=_SOON_OVER),
        Mutation.RUNNING_COUNTED: Variant(parts=Parts(start=StartParts(plans=starts.CountingRecords))),
        Mutation.BEGUN_IS_LOGGED: Variant(parts=Parts(planning=runs.BeginningUnsaid)),
        Mutation.BEGINNING_ADOPTED: Variant(parts=Parts(start=StartParts(plans=starts.AdoptingPlansOnly)), faults=_SOON_OVER),
        Mutation.PLANNED_FIRST: Variant(parts=Parts(start=StartParts(plans=starts.InRealTimeAtOnce))),
        Mutation.ENDS_AS_ASKED: Variant(ends_between=False, faults={"ask": 1}),
        Mutation.LEFT_LOOKED_FOR: Variant(parts=Parts(handover=runs.LostWithItsExecutor), faults=_DYING),
        Mutation.COLLECT_CLAIM_AGAIN: Variant(collect=CollectOrder.CLAIM_ONCE, faults={"gc": 1, "rival": 1}),
        Mutation.COLLECT_KEPT_FIRST: Variant(collect=CollectOrder.OWN_FIRST, faults={"gc": 0.7, "rival": 0.5}),
    }[mutation]
