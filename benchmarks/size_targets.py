"""What must hold where there is much: partitions, agents, streams in one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import agents, finalise, large_state, streams
from benchmarks.agent_bound import FILES, over_bound
from benchmarks.epochs import STORED
from benchmarks.figures import Case, Estimate, Figures
from benchmarks.finalise import GROWN, PART, SAMPLED, YOUNG
from benchmarks.judging import MB, Measure, Profile, Target, count, exactly, median_of, megabytes, millis, ratio_of, times
from benchmarks.processes import OWN
from benchmarks.systems import System

_COORDINATOR = "coordinator"
_MOST = 300 * MB
"""Memory of a coordinator."""
_FINALISING = (
    *("acks_ms", "acks_cpu_ms", "finalise_ms", "finalise_cpu_ms"),
    *(SAMPLED, "metadata_bytes", PART, "memory_before_bytes", "memory_bytes"),
)
_MANY_STREAMS = max(streams.COUNTS)
_AGENTS = Case(agents.EXPERIMENT, agents.SYSTEM, agents.PARTITIONS, agents.AGENTS)
_BUSY = Case(streams.BUSY, System.S3.value, streams.PARTITIONS, _MANY_STREAMS)
_THROUGH = f"{agents.PARTITIONS:,} partitions through {agents.AGENTS} agents"

_MANY_AGENTS = Profile(
    agents.EXPERIMENT,
    (agents.SYSTEM,),
    ("acks_ms", "finalise_ms", "messages", "requests", "put_bytes", "metadata_bytes", "memory_bytes", "agent_memory_bytes", FILES),
    agents.PARTITIONS,
    agents.AGENTS,
    unit="agents",
    kind="requests and memory",
)
_LARGE = Case(large_state.EXPERIMENT, System.S3.value, large_state.PARTITIONS, large_state.MEGABYTES)
_OF_LARGE = f"{large_state.MEGABYTES:,} MB in {large_state.PARTITIONS} partitions"
_LASTING = Profile(
    large_state.EXPERIMENT,
    (System.S3.value, System.SAME_LOCAL.value),
    ("early_", "late_", "most_", "put_bytes", STORED, "again_bytes", FILES, "elsewhere_percent"),
    unit="MB",
    kind="an hour",
)
_STREAMING = Profile(
    streams.EXPERIMENT,
    tuple(streams.case_of(System.S3, kind, 0).system for kind in streams.KINDS),
    ("processes", "threads", "files", "memory_bytes"),
    unit="streams",
    kind="processes",
)
_RUNNING = Profile(
    streams.BUSY,
    (System.S3.value,),
    (
        *("requests", *(f"{name}_requests" for name in ("look", "put", "delete", "list", "get", "head"))),
        *("agent_memory_bytes", FILES, "finalise_ms", "end_to_end_ms"),
    ),
    unit="streams",
    kind="requests",
)


def _finalise(metric: str, partitions: int, handles: int = GROWN) -> Measure:
    case = Case(finalise.EXPERIMENT, _COORDINATOR, partitions, handles)
    return median_of(metric, case) if metric.endswith("_ms") else exactly(metric, case)


def _each(partitions: int, handles: int) -> str:
    return f"{partitions:,} partitions, {handles} handle{'s' if handles > 1 else ''} each"


def _profile(partitions: int, handles: int) -> Profile:
    return Profile(finalise.EXPERIMENT, (_COORDINATOR,), _FINALISING, partitions, handles, "handles each")


def _of_finalise(handles: int) -> Sequence[Target]:
    """Of a store's first epochs, and of one that has run for long."""
    each, profile = _each(10_000, handles), _profile(10_000, handles)
    size, memory = (_finalise(metric, 10_000, handles) for metric in ("metadata_bytes", "memory_bytes"))
    return (
        Target(f"taking in the acknowledgements, {each}", None, _finalise("acks_ms", 10_000, handles), millis),
        Target(
            f"taking in the acknowledgements, {_each(100_000, handles)}",
            1000,
            _finalise("acks_ms", 100_000, handles),
            millis,
            profile=_profile(100_000, handles),
        ),
        Target(f"finalise, {each}", 250, _finalise("finalise_ms", 10_000, handles), millis, profile=profile),
        Target(f"_metadata, {each}", MB, size, megabytes, counted=True, profile=profile),
        Target(f"memory of the coordinator, {each}", _MOST, memory, megabytes, counted=True, profile=profile),
    )


def _late_over_early(figures: Figures) -> Estimate | str:
    return ratio_of(median_of("late_epoch_ms", _LARGE), median_of("early_epoch_ms", _LARGE))(figures)


def _each_further(figures: Figures) -> Estimate | str:
    """Of streams that have run an epoch and wait."""
    fewest, most = min(streams.COUNTS), max(streams.COUNTS)
    one, many = (figures.median(streams.case_of(System.S3, "agent", count), "memory_bytes") for count in (fewest, most))
    return "" if one is None or many is None else Estimate.exact((many - one) / (most - fewest))


def _own_processes(figures: Figures) -> Estimate | str:
    found = [figures.median(streams.case_of(System.S3, kind, _MANY_STREAMS), "processes") for kind in OWN]
    return Estimate.exact(sum(number or 0 for number in found)) if all(found) else ""


def _asked_by_epochs(figures: Figures) -> Estimate | str:
    """Less looks: a stream that waits for its next trigger asks for the next entry of its log, which is not there."""
    asked, looks = figures.median(_BUSY, "requests"), figures.median(_BUSY, "look_requests")
    return "" if asked is None or looks is None else Estimate.exact(asked - looks)


SIZE_TARGETS: Sequence[Target] = (
    Target(f"an epoch late in an hour over an early one, {_OF_LARGE}", None, _late_over_early, times, profile=_LASTING),
    Target(
        f"an epoch over stock's on its local disk, {_OF_LARGE}",
        None,
        ratio_of(median_of("epoch_ms", _LARGE), median_of("epoch_ms", replace(_LARGE, system=System.SAME_LOCAL.value))),
        times,
        profile=_LASTING,
    ),
    Target(f"bytes that were stored already, {_OF_LARGE}", 0, exactly("again_bytes", _LARGE), megabytes, counted=True, profile=_LASTING),
    Target(
        f"memory of an agent over its bound, {_OF_LARGE}",
        1,
        over_bound("most_agent_memory_bytes", _LARGE),
        times,
        counted=True,
        profile=_LASTING,
    ),
    *(target for handles in (YOUNG, GROWN) for target in _of_finalise(handles)),
    Target(
        "finalise, 100,000 partitions over 10,000: linear",
        11,
        ratio_of(_finalise("finalise_ms", 100_000), _finalise("finalise_ms", 10_000)),
        times,
        profile=Profile(finalise.EXPERIMENT, (_COORDINATOR,), _FINALISING, size=GROWN, unit="handles each"),
    ),
    Target(
        f"S3 requests an epoch, {_THROUGH}: 4 + agents",
        4 + agents.AGENTS,
        exactly("requests", _AGENTS),
        count,
        counted=True,
        profile=_MANY_AGENTS,
    ),
    Target(
        f"memory of the coordinator, {_THROUGH}", _MOST, exactly("memory_bytes", _AGENTS), megabytes, counted=True, profile=_MANY_AGENTS
    ),
    Target(
        f"memory of an agent over its bound, {_THROUGH}",
        1,
        over_bound("agent_memory_bytes", _AGENTS),
        times,
        counted=True,
        profile=_MANY_AGENTS,
    ),
    Target(f"finalise, {_THROUGH}", None, median_of("finalise_ms", _AGENTS), millis),
    Target(
        f"coordinators and agents of {_MANY_STREAMS} streams in one session", 2, _own_processes, count, counted=True, profile=_STREAMING
    ),
    Target(
        f"S3 requests an epoch, {_MANY_STREAMS} streams that run, looks at their logs apart: 4 + executors",
        4 + 1,
        _asked_by_epochs,
        count,
        counted=True,
        profile=_RUNNING,
    ),
    Target(
        f"memory of the coordinator, {_MANY_STREAMS} streams that run",
        _MOST,
        exactly("coordinator_memory_bytes", _BUSY),
        megabytes,
        counted=True,
        profile=_RUNNING,
    ),
    Target(
        f"memory of the agent over its bound, {_MANY_STREAMS} streams that run",
        1,
        over_bound("agent_memory_bytes", _BUSY, _MANY_STREAMS),
        times,
        counted=True,
        profile=_RUNNING,
    ),
    Target("memory that each further stream adds to an agent", None, _each_further, megabytes),
    Target(f"finalise, {_MANY_STREAMS} streams that run", None, median_of("finalise_ms", _BUSY), millis),
)
