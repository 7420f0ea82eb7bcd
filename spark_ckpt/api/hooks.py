"""Hooks: a user's own state in the checkpoints of a query, and word of each that is durable (docs/hooks.md)."""

from __future__ import annotations

import base64
import json
import logging
import re
from typing import Any

from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.errors import ConfigError

_MESSAGE = 2000
"""Letters of what a hook raises that are told; all of it is in the log."""
_MAX_STATE = 1 << 20
"""Bytes of a state, as in `QueryHooks.scala`: looked at here too, since a large one would be several times in the driver's memory."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""As in `CheckpointHooks.scala`."""
_CALLS = ("snapshot", "restore", "completed", "aborted")
_log = logging.getLogger(__name__)


class CheckpointHook:
    """Override what is of interest, then `register_hook` it (Flink: `MasterTriggerRestoreHook`, `CheckpointListener`).

    All calls come one after another, in a thread of the hook's own, which is not the one that runs `foreachBatch`. Each may take
    `spark.ckpt.hooks.timeout`. What follows when one raises, or takes longer, `spark.ckpt.hooks.onFailure` says.
    """

    def snapshot(self, epoch: int) -> bytes | None:  # noqa: ARG002
        """The state to keep in the checkpoint of this epoch, 1 MiB at most; None: there is none.

        Called at the end of every epoch, after its data and before the data of the next one: any epoch may become a checkpoint. Called
        again for an epoch that runs again.
        """
        return None

    def begin(self, stream: str, start: int) -> None:
        """The query begins, or goes back to its last checkpoint in place: `restore` comes next. `stream`: the URL of the stream. `start`:
        the number of this start; every later one of the same stream has a greater number, on whichever machine.

        It is a fencing token. A driver may be replaced while it waits for a slow disk, and go on later: what the hook writes to should
        remember the greatest number of the stream, and refuse whoever has a smaller one. Numbers of two streams cannot be compared: a
        savepoint that is restored in another place goes on there as another stream.
        """

    def restore(self, state: bytes | None) -> None:
        """The query begins, or goes back to its last checkpoint in place: before the first epoch runs. `state` is that of the checkpoint
        or savepoint that it goes on from, None where there is none, or no state of this hook in it.

        Whatever the hook has of later epochs is void: they run again, or others take their place.
        """

    def completed(self, epoch: int) -> None:
        """There is a durable checkpoint of this epoch: it covers this epoch and all before it, of which many may have been told of none.

        Told at least once, and once more after each `restore` from a checkpoint, since nobody knows whether it was told before.
        """

    def aborted(self, epoch: int) -> None:
        """There is no checkpoint of this epoch, and nothing else: the epoch is over and valid, and a later checkpoint covers it."""


def register_hook(name: str, hook: CheckpointHook, *, query: str | None = None) -> None:
    """Give the hook to a query of this application that starts after this.

    `name`: under which its state is in checkpoints: letters, digits, `.`, `_` and `-`, 100 at most. `query`: the name of the query that it
    belongs to (`queryName`); it can be left out where the application has one query only. A hook that is registered again under the same
    name takes the place of the first, from the query's next start on. Hooks end with the session.

    Raises `ConfigError` where there is no session of the driver's own with checkpoints, for a name that is none, and for a hook that
    lacks a method.
    """
    missing = [call for call in _CALLS if not callable(getattr(hook, call, None))]
    if missing or isinstance(hook, type):
        lacks = f"has no {missing[0]}()" if missing else "is a class, not an object"
        raise ConfigError(f"the hook {name!r} {lacks}; derive it from spark_ckpt.CheckpointHook, and register an object of that class")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r:.200} is no name of a hook; use letters, digits, '.', '_' and '-', 100 at most")
    if query is not None and not isinstance(query, str):
        raise ConfigError(f"the hook {name!r} has query={query!r:.200}, which is no name; give the query's queryName, or leave query= out")
    if query == "":
        raise ConfigError(f"the hook {name!r} has query='', and no query has that name; give its queryName, or leave query= out")
    context = _context()
    from py4j.java_gateway import JavaClass
    from py4j.protocol import Py4JJavaError

    hooks = context._jvm.org.apache.spark.ckpt.CheckpointHooks
    if not isinstance(hooks, JavaClass) or PLUGIN_CLASS not in (context.getConf().get("spark.plugins") or ""):
        raise ConfigError("this session has no checkpoints; enable them first, with spark_ckpt.configure() for example")
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    try:
        hooks.registerPython(name, _Callback(name, hook), query)
    except Py4JJavaError as e:
        raise ConfigError(str(e.java_exception.getMessage())) from None


def _context() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        raise ConfigError(
            "there is no Spark session of this process to register a hook with; make the session first, in the driver's program (not with "
            "Spark Connect)"
        )
    return context


class _Callback:
    """What the JVM calls: a `java.util.function.Function`, an interface that every class loader knows, of lines of JSON."""

    def __init__(self, name: str, hook: CheckpointHook) -> None:
        self._name = name
        self._hook = hook

    def apply(self, line: str) -> str:
        return json.dumps(answer(self._name, self._hook, json.loads(line)))

    class Java:
        implements = ["java.util.function.Function"]


def answer(name: str, hook: CheckpointHook, asked: dict[str, Any]) -> dict[str, Any]:
    """Make one call of the hook. What it raises is told by type and message; its trace goes to the log."""
    call = asked["call"]
    try:
        if call == "begin":
            getattr(hook, "begin", lambda *_: None)(asked["stream"], asked["start"])
            return {}
        if call == "restore":
            state = asked["state"]
            hook.restore(None if state is None else base64.b64decode(state))
            return {}
        given = getattr(hook, call)(asked["epoch"])
        if call != "snapshot" or given is None:
            return {}
        if not isinstance(given, (bytes, bytearray, memoryview)):
            raise TypeError(f"snapshot returned a {type(given).__name__}; return bytes, or None")
        if (size := memoryview(given).nbytes) > _MAX_STATE:
            raise ValueError(
                f"its state has {size} bytes, more than {_MAX_STATE}; keep what is large elsewhere, and in the checkpoint its name"
            )
        return {"state": base64.b64encode(given).decode()}
    except BaseException as e:  # py4j answers nothing to a SystemExit, and the query would wait
        _log.exception("the hook %r failed in %s", name, call)
        return {"error": _error_text(e)}


def _error_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as e:
        text = f"its message raises {type(e).__name__}"
    # A file's name may hold half a character (surrogateescape), which is stored and sent nowhere.
    shown = text[:_MESSAGE].encode(errors="backslashreplace").decode()
    return f"{type(error).__name__}: {shown}{'…' if len(text) > _MESSAGE else ''}"
