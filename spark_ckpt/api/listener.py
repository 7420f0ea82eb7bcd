"""Checkpoint events in Python, as PySpark's `StreamingQueryListener` has a query's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_ckpt.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE = "org.apache.spark.ckpt."


@dataclass(frozen=True)
class CheckpointEvent:
    """`root` is the query's `checkpointLocation` as a URI; times are milliseconds since 1970."""

    root: str
    run: int
    epoch: int
    time_ms: int
    """When the checkpoint was triggered."""


@dataclass(frozen=True)
class CheckpointTriggered(CheckpointEvent):
    """The barrier has been sent, or, `late`, the epoch had ended before it became a checkpoint."""

    late: bool


@dataclass(frozen=True)
class OperatorShare:
    """What one stateful operator contributed. Sizes in bytes, durations in milliseconds, of its slowest partition."""

    id: int
    name: str
    partitions: int
    new_bytes: int
    full_bytes: int
    sync_ms: float
    async_ms: float
    start_delay_ms: float
    latency_ms: float
    """From the barrier's trigger to the commit of its last partition."""
    end_to_end_ms: float
    """From the barrier's trigger until its last snapshot was durable."""


@dataclass(frozen=True)
class CheckpointCompleted(CheckpointEvent):
    """It is durable below `path`."""

    path: str
    acked: int
    required: int
    new_bytes: int
    full_bytes: int
    metadata_bytes: int
    duration_ms: int
    lag_epochs: int
    """Finished epochs that are newer than the newest completed checkpoint."""
    lag_ms: int
    """Since that one was triggered; 0 if it holds all of them."""
    lag_bytes: int
    late: bool
    """Its epoch had ended before it became a checkpoint."""
    operators: tuple[OperatorShare, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class CheckpointAborted(CheckpointEvent):
    """It will never complete. `reason` is a name of `AbortReason`, `message` a sentence."""

    reason: str
    message: str
    acked: int
    required: int
    late: bool


@dataclass(frozen=True)
class CheckpointRestored(CheckpointEvent):
    """A run goes on from this checkpoint."""

    path: str
    full_bytes: int
    restored_from: str
    """Of which savepoint, or checkpoint of another stream, it is a copy; empty: of none."""
    from_savepoint: bool


@dataclass(frozen=True)
class CheckpointSavepoint(CheckpointEvent):
    """A self-contained copy of the checkpoint, which somebody asked for, is stored at `path`."""

    path: str
    full_bytes: int


class CheckpointListener:
    """Override what is of interest, then `attach` it to a session whose application has checkpoints.

    Events come one after another in a thread that serves listeners only: a slow listener holds up no query, it misses events
    if it stays behind by a thousand. An exception is logged by Spark and ends nothing.
    """

    def on_triggered(self, event: CheckpointTriggered) -> None:
        """A checkpoint has begun."""

    def on_completed(self, event: CheckpointCompleted) -> None:
        """A checkpoint is complete and durable."""

    def on_aborted(self, event: CheckpointAborted) -> None:
        """A checkpoint was given up."""

    def on_restored(self, event: CheckpointRestored) -> None:
        """A query has begun from a checkpoint."""

    def on_savepoint(self, event: CheckpointSavepoint) -> None:
        """A savepoint is stored."""

    _bridge: Any = None

    def attach(self, spark: SparkSession) -> None:
        """Begin to listen, through the callback server that PySpark has for its own listeners.

        Raises `ConfigError` where the session is not the driver's own (Spark Connect) or has no plugin, and where it listens already.
        """
        context: Any = getattr(spark, "_sc", None)
        if context is None:
            raise ConfigError("a CheckpointListener needs the driver's own session, not Spark Connect; attach it in the driver's program")
        if self._listens():
            raise ConfigError("this CheckpointListener is attached already; detach it first")
        from pyspark.java_gateway import ensure_callback_server_started

        bridge = getattr(getattr(context._jvm, _PACKAGE.rstrip(".")), "ListenerBridge")  # noqa: B009
        if not callable(bridge):
            raise ConfigError("this session has no checkpoints to listen to; enable them first, with spark_ckpt.configure() for example")
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        self._bridge = bridge(context._jsc.sc(), _Consumer(self))
        self._bridge.start()

    def detach(self) -> None:
        """Listen no more. What has happened before is still told."""
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.stop()

    def _listens(self) -> bool:
        """Not any more once the session it was attached to has stopped, or its JVM has died (py4j has no common class for that)."""
        try:
            return self._bridge is not None and bool(self._bridge.isOpen())
        except Exception:
            return False


class _Consumer:
    """What the JVM calls: a `java.util.function.Consumer`, an interface that every class loader knows."""

    def __init__(self, listener: CheckpointListener) -> None:
        self._listener = listener

    def accept(self, line: str) -> None:
        dispatch(self._listener, line)

    class Java:
        implements = ["java.util.function.Consumer"]


def dispatch(listener: CheckpointListener, line: str) -> None:
    """Hand an event, as Spark's event log writes it, to the listener. Other events are left alone."""
    doc = json.loads(line)
    known: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
        "CheckpointTriggered": lambda d: listener.on_triggered(CheckpointTriggered(**_common(d), late=d["late"])),
        "CheckpointCompleted": lambda d: listener.on_completed(_completed(d)),
        "CheckpointAborted": lambda d: listener.on_aborted(_aborted(d)),
        "CheckpointRestored": lambda d: listener.on_restored(_restored(d)),
        "CheckpointSavepoint": lambda d: listener.on_savepoint(
            CheckpointSavepoint(**_common(d), path=d["path"], full_bytes=d["fullBytes"])
        ),
    }
    handle = known.get(doc["Event"].removeprefix(_PACKAGE))
    if handle is not None:
        handle(doc)


def _common(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {"root": doc["root"], "run": doc["run"], "epoch": doc["epoch"], "time_ms": doc["timeMs"]}


def _aborted(doc: Mapping[str, Any]) -> CheckpointAborted:
    acks = {"acked": doc["acked"], "required": doc["required"]}
    return CheckpointAborted(**_common(doc), reason=doc["reason"], message=doc["message"], **acks, late=doc["late"])


def _restored(doc: Mapping[str, Any]) -> CheckpointRestored:
    origin = {"restored_from": doc["from"], "from_savepoint": doc["fromSavepoint"]}
    return CheckpointRestored(**_common(doc), path=doc["path"], full_bytes=doc["fullBytes"], **origin)


def _completed(doc: Mapping[str, Any]) -> CheckpointCompleted:
    lag = doc["lag"]
    return CheckpointCompleted(
        **_common(doc),
        path=doc["path"],
        acked=doc["acked"],
        required=doc["required"],
        new_bytes=doc["newBytes"],
        full_bytes=doc["fullBytes"],
        metadata_bytes=doc["metadataBytes"],
        duration_ms=doc["durationMs"],
        lag_epochs=lag["epochs"],
        lag_ms=lag["ms"],
        lag_bytes=lag["bytes"],
        late=doc["late"],
        operators=tuple(
            OperatorShare(
                id=o["id"],
                name=o["name"],
                partitions=o["partitions"],
                new_bytes=o["newBytes"],
                full_bytes=o["fullBytes"],
                sync_ms=o["syncMsMax"],
                async_ms=o["asyncMsMax"],
                start_delay_ms=o["startDelayMsMax"],
                latency_ms=o["commitMsMax"],
                end_to_end_ms=o["ackedMsMax"],
            )
            for o in doc["operators"]
        ),
    )
