"""Why a query failed, and whether starting it again can help.

Spark puts what went wrong at the end of a chain of JVM throwables. Read through py4j, the chain names every class with its superclasses,
Spark's error conditions and the kind of our own `CheckpointFailure`. A failure of a task may arrive as text only, inside the message of
"Job aborted": `CheckpointFailure.toString` therefore carries the kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spark_ckpt.errors import CheckpointError, ErrorKind

_MAX_CHAIN = 50
_MAX_LINE = 500
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(re.escape(_TRACEBACK) + r"\n(?:[ \t].*\n)+(\S.*)")
_FAILURE_CLASS = "org.apache.spark.ckpt.CheckpointFailure"
_KIND_IN_TEXT = re.compile(re.escape(_FAILURE_CLASS) + r"\[([A-Z]+)\]")
_CONDITION_IN_TEXT = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)\]")


class Cause(Enum):
    """What a failure comes down to."""

    PASSING = "PASSING"
    """Lost executors, storage away, time-outs, a user's function that failed, anything unknown: starting again may help."""
    CONFIG = "CONFIG"
    """A wrong or contradicting option."""
    FENCED = "FENCED"
    """Another run has claimed the stream: starting again would take it back from its rightful successor."""
    CONFLICT = "CONFLICT"
    """The location belongs to another job, or holds a stock checkpoint."""
    UNUSABLE = "UNUSABLE"
    """What the query was to go on from is damaged or missing, and a person has to choose what to do."""
    DEFINITION = "DEFINITION"
    """The query cannot be analysed or planned, or the function that starts it has a fault."""
    STATE_SCHEMA = "STATE_SCHEMA"
    """The query no longer fits the state that it left."""
    SESSION = "SESSION"
    """The Spark session is gone, and the function that starts the query does not make another one."""


@dataclass(frozen=True)
class Thrown:
    """One link of the chain: its class and superclasses, the class itself first; `kind` only of a `CheckpointFailure`."""

    classes: tuple[str, ...]
    message: str = ""
    condition: str | None = None
    kind: str | None = None


_FATAL_KINDS = {
    ErrorKind.CONFIG.value: Cause.CONFIG,
    ErrorKind.FENCED.value: Cause.FENCED,
    ErrorKind.CONFLICT.value: Cause.CONFLICT,
    ErrorKind.UNUSABLE.value: Cause.UNUSABLE,
}
"""The other kinds pass: damage that a run meets, because the next claim goes back to the checkpoint before; wrong credentials, of the
storage or of a source, because they are renewed."""

_FATAL_CONDITIONS = [
    (
        re.compile(
            r"(CANNOT_LOAD_STATE_STORE\.|STATE_STORE_)(KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
            r"|STATE_STORE_((KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|COLUMN_FAMILY_SCHEMA_INCOMPATIBLE|INVALID_VALUE_SCHEMA_EVOLUTION)"
            r"|STATE_STORE_(INVALID_VARIABLE_TYPE_CHANGE|VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED|STATE_SCHEMA_FILES_THRESHOLD_EXCEEDED)"
            r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
        ),
        Cause.STATE_SCHEMA,
    ),
    (re.compile(r"STATE_STORE_INVALID_(CONFIG_AFTER_RESTART|PROVIDER)"), Cause.CONFIG),
    (re.compile(r"CONCURRENT_STREAM_LOG_UPDATE"), Cause.FENCED),
    (re.compile(r"STREAMING_QUERY_EVOLUTION_ERROR(\..*)?"), Cause.DEFINITION),
]
"""Spark's error conditions (error/error-conditions.json in its JAR). They count wherever they stand, in a task's failure too."""

_DEFINITION_CLASSES = {"org.apache.spark.sql.AnalysisException", "java.lang.IllegalArgumentException"}
_PYTHON_DEFINITION_CLASSES = {"AnalysisException", "IllegalArgumentException", "ParseException"}

_USER_FUNCTION_CLASSES = {
    "org.apache.spark.sql.execution.streaming.sources.ForeachBatchUserFuncException",
    "org.apache.spark.sql.execution.streaming.sources.ForeachUserFuncException",
    "org.apache.spark.api.python.PythonException",
}
_PYTHON_SOURCE = re.compile(r"PYTHON_(STREAMING_)?DATA_SOURCE.*")


def cause_of(error: BaseException, *, starting: bool = False) -> Cause:
    """What an exception of PySpark, or of the function that starts the query (`starting`), comes down to."""
    if isinstance(error, CheckpointError):
        return _FATAL_KINDS.get(error.kind.value, Cause.PASSING)
    chain = jvm_chain(error)
    if chain:
        cause = judge(chain)
    elif _is_of_spark(error):
        cause = judge([_from_text(error)])
    elif starting and not isinstance(error, OSError):
        # Python's own errors in the user's function: a name or type that is wrong stays wrong. An OSError is somebody who does not answer.
        cause = Cause.DEFINITION
    else:
        cause = Cause.PASSING
    if starting and cause in (Cause.PASSING, Cause.DEFINITION) and (session_is_over() or _names_stopped_session(chain)):
        return Cause.SESSION
    return cause


def failure_text(error: BaseException) -> str:
    """Why, in one line of at most some 1,000 characters."""
    return in_one_line(error, jvm_chain(error))


def in_one_line(error: BaseException, chain: Sequence[Thrown]) -> str:
    for thrown in chain:
        if _FAILURE_CLASS in thrown.classes and thrown.message:
            return _one_line(thrown.message)  # a sentence for people, whatever Spark has wrapped it in
    text, name = str(error), type(error).__name__
    if chain and name.startswith("Py4J"):
        # Its own text says which call to the JVM failed ("An error occurred while calling o1071.start"), and not why.
        first = next((thrown for thrown in chain if thrown.message), chain[0])
        text, name = first.message, first.classes[0].rsplit(".", 1)[-1]
    return f"{name}: {_one_line(text)}" if text.strip() else name


def _one_line(text: str) -> str:
    """The first line, and what a user's Python function has raised, if that stands further down, at the end of its traceback."""
    first = text.strip().splitlines()[0].removesuffix(_TRACEBACK).strip()[:_MAX_LINE]
    raised = [line.strip() for line in _RAISED.findall(text)[-1:]]
    return " ".join(part for part in (first, *(line[:_MAX_LINE] for line in raised if line not in first)) if part)


def judge(chain: Sequence[Thrown]) -> Cause:
    """The verdict on a chain, outermost first. Behind a failed job or user's function only what cannot be about the data counts."""
    for thrown in chain:
        for kind in [thrown.kind, *_KIND_IN_TEXT.findall(thrown.message)]:
            if kind in _FATAL_KINDS:
                return _FATAL_KINDS[kind]
        for pattern, cause in _FATAL_CONDITIONS:
            if any(pattern.fullmatch(c) for c in (thrown.condition, *_CONDITION_IN_TEXT.findall(thrown.message)) if c):
                return cause
    for thrown in chain:
        if _is_boundary(thrown):
            break
        # Spark's own failures of a checkpoint are told by their kind, whatever they wrap.
        if _FAILURE_CLASS in thrown.classes:
            break
        if _DEFINITION_CLASSES.intersection(thrown.classes):
            return Cause.DEFINITION
    return Cause.PASSING


def _is_boundary(thrown: Thrown) -> bool:
    """What lies behind it came from a task or a user's function, where an IllegalArgumentException is about one row of data."""
    name = thrown.classes[0]
    aborted = name == "org.apache.spark.SparkException" and thrown.message.startswith("Job aborted")
    return aborted or name in _USER_FUNCTION_CLASSES or name.startswith("py4j.") or bool(_PYTHON_SOURCE.fullmatch(thrown.condition or ""))


def jvm_chain(error: BaseException) -> list[Thrown]:
    """The chain of JVM throwables behind an exception of PySpark; empty where there is none (Spark Connect, a dead JVM, plain Python)."""
    origin = _origin(error)
    if origin is None:
        return []
    chain: list[Thrown] = []
    try:
        while origin is not None and len(chain) < _MAX_CHAIN:
            chain.append(_read(origin))
            origin = origin.getCause()
    except Exception:  # the JVM died meanwhile: py4j's errors have no common base with those of its socket
        return chain
    return chain


def _origin(error: BaseException | None) -> Any:
    # query.exception() has no _origin itself, but its _cause does.
    for _ in range(_MAX_CHAIN):
        if error is None:
            break
        for name in ("_origin", "java_exception"):
            if (found := getattr(error, name, None)) is not None:
                return found
        error = getattr(error, "_cause", None)
    return None


def _read(throwable: Any) -> Thrown:
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    classes: list[str] = []
    of = throwable.getClass()
    while of is not None and len(classes) < _MAX_CHAIN:
        classes.append(str(of.getName()))
        of = of.getSuperclass()
    gateway = SparkContext._gateway
    named = gateway is not None and is_instance_of(gateway, throwable, "org.apache.spark.SparkThrowable")
    return Thrown(
        tuple(classes),
        str(throwable.getMessage() or ""),
        throwable.getCondition() if named else None,
        str(throwable.kind()) if _FAILURE_CLASS in classes else None,
    )


def _is_of_spark(error: BaseException) -> bool:
    return any(c.__module__.split(".")[0] in ("pyspark", "py4j") for c in type(error).__mro__)


def _from_text(error: BaseException) -> Thrown:
    """The Python exception in the place of a JVM one: Spark Connect sends class, condition and message."""
    names = {c.__name__ for c in type(error).__mro__}
    known = "java.lang.IllegalArgumentException" if names & _PYTHON_DEFINITION_CLASSES else type(error).__name__
    condition = getattr(error, "getCondition", None)
    return Thrown((known,), str(error), condition() if callable(condition) else None)


def _names_stopped_session(chain: Sequence[Thrown]) -> bool:
    """A DataFrame of a stopped session, while PySpark has made a new one by the way (`SparkSession._getActiveSessionOrCreate`)."""
    return any(t.classes[0] == "java.lang.IllegalStateException" and "on a stopped SparkContext" in t.message for t in chain)


def session_is_over() -> bool:
    """Whether this process had a classic Spark session whose SparkContext has stopped or whose JVM has died."""
    from pyspark import SparkContext

    if SparkContext._gateway is None:
        return False
    context = SparkContext._active_spark_context
    if context is None:
        return True
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # the JVM does not answer: py4j or the socket says so in many ways
        return True
