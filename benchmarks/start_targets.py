"""What must hold of starts: from long chains, and late in the life of a stream with short epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import chains, restart_pieces, restore, short_epochs
from benchmarks.figures import Case, Estimate, Figures
from benchmarks.flink import commands
from benchmarks.judging import Measure, Profile, Target, count, exactly, median_of, millis, ratio_of, times
from benchmarks.systems import EXECUTORS, System

_CHAIN = Case(chains.EXPERIMENT, System.S3.value, chains.PARTITIONS, chains.EPOCHS)
_IN_A_CLUSTER = replace(_CHAIN, system=System.S3_CLUSTER.value)
_RESTORED = Case(restore.EXPERIMENT, System.S3.value, restore.PARTITIONS, restore.MEGABYTES)
_SHORT = Case(short_epochs.EXPERIMENT, short_epochs.OURS, short_epochs.PARTITIONS, short_epochs.EPOCHS)
_LONG_CHAINS = replace(_SHORT, system=short_epochs.SELDOM_FULL)
_LENGTH = f"{chains.PARTITIONS} partitions with {chains.EPOCHS} changelogs each"

_STARTING = Profile(
    chains.EXPERIMENT,
    (_CHAIN.system, _IN_A_CLUSTER.system),
    (f"{chains.CHAIN}_", f"{chains.EMPTY}_", "beyond_ms", "state_bytes", "elsewhere_percent"),
    chains.PARTITIONS,
    chains.EPOCHS,
    unit="changelogs",
    kind="starts",
)
_RESTARTING = Profile(
    restart_pieces.EXPERIMENT,
    (*(system.value for system in (System.S3, System.SAME_LOCAL, System.SAME_TUNED)), commands.NAME),
    (*(f"{name}_ms" for name in (*restart_pieces.PIECES, "restart")), "elsewhere_percent"),
    unit="MB",
)
_RESTORING = Profile(
    restore.EXPERIMENT,
    (_RESTORED.system,),
    ("first_epoch_read_bytes", "empty_read_bytes", "state_bytes", "elsewhere_percent"),
    kind="bytes",
)
_LIVING = Profile(
    short_epochs.EXPERIMENT,
    (_SHORT.system, _LONG_CHAINS.system),
    ("empty_", "early_", "late_", "put_bytes", "elsewhere_percent"),
    unit="epochs",
    kind="short epochs",
)


def _read(case: Case) -> Measure:
    """Bytes from S3, less those of a start on nothing, over the bytes that the state's objects have."""

    def measure(figures: Figures) -> Estimate | str:
        values = [figures.median(case, metric) for metric in (f"{chains.CHAIN}_read_bytes", f"{chains.EMPTY}_read_bytes", "state_bytes")]
        chain, empty, state = values
        return "" if chain is None or empty is None or not state else Estimate.exact((chain - empty) / state)

    return measure


def _piece(name: str, megabytes: int) -> Measure:
    """Its part of a restart."""
    case = Case(restart_pieces.EXPERIMENT, System.S3.value, restore.PARTITIONS, megabytes)
    return ratio_of(median_of(f"{name}_ms", case), median_of("restart_ms", case))


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _of_a_restart(megabytes: int) -> Sequence[Target]:
    """What is ours of it. Without state nothing is fetched that takes time; with much the fetch is as long as the bytes are many."""
    state = f"{megabytes:,} MB of state" if megabytes else "no state"
    profile = replace(_RESTARTING, size=megabytes)
    return [
        Target(f"{name} of a restart with {state}", limit, _piece(name, megabytes), _percent, profile=profile)
        for name, limit in (("claim", 0.1), ("files", 0.1), ("fetch", None if megabytes else 0.1))
    ]


def _flat(metric: str) -> Measure:
    """Late over early."""
    return ratio_of(*(median_of(f"{when}_{metric}", _SHORT) for when in ("late", "early")))


START_TARGETS: Sequence[Target] = (
    *(target for megabytes in restart_pieces.SIZES for target in _of_a_restart(megabytes)),
    Target(f"requests of a start from {_LENGTH}", 250, exactly(f"{chains.CHAIN}_requests", _CHAIN), count, counted=True, profile=_STARTING),
    Target("the same start beyond one on nothing", 3000, median_of("beyond_ms", _CHAIN), millis, profile=_STARTING),
    Target("bytes that it reads over those of its state: each once", 1.1, _read(_CHAIN), times, counted=True, profile=_STARTING),
    Target(
        f"the same of {EXECUTORS} executors together: of each all of it once at most",
        1.1 * EXECUTORS,
        _read(_IN_A_CLUSTER),
        times,
        counted=True,
        profile=_STARTING,
    ),
    Target(
        f"bytes that a restore of {restore.MEGABYTES:,} MB reads over those of its state: each once",
        1.05,
        _read(_RESTORED),
        times,
        counted=True,
        profile=_RESTORING,
    ),
    Target(f"restart after {short_epochs.EPOCHS:,} short epochs over an early one", 1.2, _flat("ms"), times, profile=_LIVING),
    Target("`_metadata` then over the early one", 1.2, _flat("metadata_bytes"), times, counted=True, profile=_LIVING),
    Target(
        "bytes to S3 over those of the same epochs with a full snapshot every 500",
        1.3,
        ratio_of(exactly("put_bytes", _SHORT), exactly("put_bytes", _LONG_CHAINS)),
        times,
        counted=True,
        profile=_LIVING,
    ),
)
