"""Flink's checkpoint mechanism for Spark Structured Streaming. Cheap to import: Spark, pyarrow and boto3 are loaded when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_ckpt.api.session import configure
from spark_ckpt.errors import CheckpointError, ConfigError
from spark_ckpt.process.jar import jar_path

if TYPE_CHECKING:
    from spark_ckpt.api.checkpoints import checkpoint
    from spark_ckpt.api.edits import drop_keys, transform_state, write_state
    from spark_ckpt.api.hooks import CheckpointHook, register_hook
    from spark_ckpt.api.listener import CheckpointListener
    from spark_ckpt.api.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart, NotRestartedError, run
    from spark_ckpt.api.savepoints import savepoint
    from spark_ckpt.api.socket_source import RetryingSocket
    from spark_ckpt.api.state import State, read_state
    from spark_ckpt.api.stream import Stream, stream

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "CheckpointHook",
    "CheckpointListener",
    "ConfigError",
    "ExponentialDelay",
    "FailureRate",
    "FixedDelay",
    "NoRestart",
    "NotRestartedError",
    "RetryingSocket",
    "State",
    "Stream",
    "__version__",
    "checkpoint",
    "configure",
    "drop_keys",
    "jar_path",
    "read_state",
    "register_hook",
    "run",
    "savepoint",
    "stream",
    "transform_state",
    "write_state",
]

_LOADED_WHEN_USED = {
    "CheckpointHook": "api.hooks",
    "CheckpointListener": "api.listener",
    "ExponentialDelay": "api.restart",
    "FailureRate": "api.restart",
    "FixedDelay": "api.restart",
    "NoRestart": "api.restart",
    "NotRestartedError": "api.restart",
    "RetryingSocket": "api.socket_source",
    "State": "api.state",
    "Stream": "api.stream",
    "checkpoint": "api.checkpoints",
    "drop_keys": "api.edits",
    "read_state": "api.state",
    "register_hook": "api.hooks",
    "run": "api.restart",
    "savepoint": "api.savepoints",
    "stream": "api.stream",
    "transform_state": "api.edits",
    "write_state": "api.edits",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(f"{__name__}.{_LOADED_WHEN_USED[name]}")
    except ConfigError as e:
        raise _NotWithThisSparkError(str(e)) from e
    except ModuleNotFoundError as e:
        from spark_ckpt.process.packages import lacking

        if e.name is None or e.name.split(".")[0] == __name__:
            raise
        raise lacking([e.name]) from e
    return getattr(module, name)


class _NotWithThisSparkError(ConfigError, AttributeError):
    """`hasattr` says no, and who uses it reads why."""
