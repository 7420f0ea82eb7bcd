"""Which failures are fatal, on chains as Spark builds them (tests/spark/test_restart.py shows that they are built so)."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException

from spark_ckpt.api.causes import Cause, Thrown, cause_of, in_one_line, judge
from spark_ckpt.errors import ConflictError, DamagedError, ErrorKind, StorageSetupError

THROWABLE = ("java.lang.Exception", "java.lang.Throwable")
QUERY = Thrown(("org.apache.spark.sql.streaming.StreamingQueryException", *THROWABLE), "[STREAM_FAILED] Query", "STREAM_FAILED")
ILLEGAL = Thrown(("org.apache.spark.SparkIllegalArgumentException", "java.lang.IllegalArgumentException", *THROWABLE), "no such field")
ANALYSIS = Thrown(("org.apache.spark.sql.catalyst.ExtendedAnalysisException", "org.apache.spark.sql.AnalysisException", *THROWABLE), "x")
BATCH = Thrown(("org.apache.spark.sql.execution.streaming.sources.ForeachBatchUserFuncException", *THROWABLE), "user")


def spark(message: str, condition: str | None = None) -> Thrown:
    return Thrown(("org.apache.spark.SparkException", *THROWABLE), message, condition)


def ours(kind: str) -> Thrown:
    return Thrown(("org.apache.spark.ckpt.CheckpointFailure", "java.lang.RuntimeException", *THROWABLE), "why", None, kind)


ABORTED = spark("Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times")


@pytest.mark.parametrize("kind", ErrorKind)
def test_the_kind_decides_over_our_own_failures(kind: ErrorKind) -> None:
    fatal = {ErrorKind.CONFIG: Cause.CONFIG, ErrorKind.FENCED: Cause.FENCED, ErrorKind.CONFLICT: Cause.CONFLICT}
    fatal[ErrorKind.UNUSABLE] = Cause.UNUSABLE
    assert judge([QUERY, ours(kind.value)]) is fatal.get(kind, Cause.PASSING)
    assert judge([QUERY, ABORTED, ours(kind.value)]) is fatal.get(kind, Cause.PASSING)
    assert judge([QUERY, ours(kind.value), ILLEGAL]) is fatal.get(kind, Cause.PASSING)
    text = f"Job aborted due to stage failure: Lost task 0.0 (executor 1): org.apache.spark.ckpt.CheckpointFailure[{kind.value}]: why"
    assert judge([QUERY, spark(text)]) is fatal.get(kind, Cause.PASSING)


@pytest.mark.parametrize(
    ("chain", "cause"),
    [
        ([ANALYSIS], Cause.DEFINITION),
        ([QUERY, ANALYSIS], Cause.DEFINITION),
        ([QUERY, ILLEGAL], Cause.DEFINITION),
        ([QUERY, spark("Writing job aborted", "WRITING_JOB_ABORTED"), ABORTED, ILLEGAL], Cause.PASSING),
        ([QUERY, BATCH, ILLEGAL], Cause.PASSING),
        ([QUERY, Thrown(("py4j.Py4JException", *THROWABLE), "An exception was raised by the Python Proxy"), ANALYSIS], Cause.PASSING),
        ([QUERY, Thrown(ANALYSIS.classes, "x", "PYTHON_DATA_SOURCE_ERROR")], Cause.PASSING),
        ([QUERY, Thrown(("java.lang.OutOfMemoryError", "java.lang.Error"))], Cause.PASSING),
        ([QUERY, spark("x", "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE")], Cause.STATE_SCHEMA),
        ([QUERY, spark(ABORTED.message + ": Lost task: X: [STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided")], Cause.STATE_SCHEMA),
        ([QUERY, spark("x", "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA")], Cause.STATE_SCHEMA),
        ([QUERY, ABORTED, spark("x", "CANNOT_LOAD_STATE_STORE.KEY_ROW_FORMAT_VALIDATION_FAILURE")], Cause.STATE_SCHEMA),
        ([QUERY, ABORTED, spark("x", "CANNOT_LOAD_STATE_STORE.CANNOT_READ_CHECKPOINT")], Cause.PASSING),
        ([QUERY, spark("x", "STATE_STORE_INVALID_CONFIG_AFTER_RESTART")], Cause.CONFIG),
        ([QUERY, spark("x", "CONCURRENT_STREAM_LOG_UPDATE")], Cause.FENCED),
        ([QUERY, spark("x", "STREAMING_QUERY_EVOLUTION_ERROR.DUPLICATE_SOURCE_NAMES")], Cause.DEFINITION),
    ],
)
def test_chains(chain: list[Thrown], cause: Cause) -> None:
    assert judge(chain) is cause


class Py4JJavaError(Exception):
    """As py4j's, in name and text."""


TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 3, in each
    raise RuntimeError("…")
RuntimeError: the user's database was away
"""
CALL = Py4JJavaError("An error occurred while calling o1071.start.\n: java.lang.IllegalStateException: why\n\tat org.apache.Some")


@pytest.mark.parametrize(
    ("error", "chain", "text"),
    [
        (CALL, [ours("CONFIG")], "why"),
        (CALL, [spark("Exception thrown in awaitResult"), ours("CONFLICT")], "why"),
        (CALL, [Thrown(("java.lang.IllegalStateException", *THROWABLE), "no such thing\nat all")], "IllegalStateException: no such thing"),
        (CALL, [Thrown(("java.lang.Error", *THROWABLE)), spark("the cause behind it")], "SparkException: the cause behind it"),
        (CALL, [Thrown(("java.lang.StackOverflowError", *THROWABLE))], "StackOverflowError"),
        (CALL, [], "Py4JJavaError: An error occurred while calling o1071.start."),
        (StreamingQueryException("[STREAM_FAILED] Query terminated: why\nmore"), [QUERY, spark("why")], None),
        (
            StreamingQueryException("[STREAM_FAILED] Query terminated: in foreach batch: " + TRACEBACK + "\n\nJVM stacktrace:\nat x\n"),
            [QUERY, BATCH],
            "StreamingQueryException: [STREAM_FAILED] Query terminated: in foreach batch: RuntimeError: the user's database was away",
        ),
        (CALL, [spark(TRACEBACK)], "SparkException: RuntimeError: the user's database was away"),
        (TypeError(), [], "TypeError"),
        (OSError("x" * 600), [], "OSError: " + "x" * 500),
    ],
)
def test_why_in_one_line(error: Exception, chain: list[Thrown], text: str | None) -> None:
    """A refused start of Spark's is told by its cause, not by the call that failed."""
    assert in_one_line(error, chain) == (text or "StreamingQueryException: [STREAM_FAILED] Query terminated: why")


def test_errors_of_this_package() -> None:
    assert cause_of(ConflictError("another job")) is Cause.CONFLICT
    assert cause_of(DamagedError("short")) is Cause.PASSING
    assert cause_of(StorageSetupError("credentials have expired")) is Cause.PASSING


def test_python_errors_count_at_the_start_only() -> None:
    assert cause_of(TypeError("x")) is Cause.PASSING
    assert cause_of(TypeError("x"), starting=True) is Cause.DEFINITION
    assert cause_of(TimeoutError("x"), starting=True) is Cause.PASSING


def test_exceptions_without_a_jvm_behind_them() -> None:
    """As Spark Connect raises them: the class, the condition and the text are all there is."""
    assert cause_of(AnalysisException("no such column")) is Cause.DEFINITION
    assert cause_of(StreamingQueryException("Query terminated: Job aborted: lost executor")) is Cause.PASSING
    assert cause_of(StreamingQueryException("at org.apache.spark.ckpt.CheckpointFailure[FENCED]: run 4")) is Cause.FENCED
    assert cause_of(PySparkException("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema"), starting=True) is Cause.STATE_SCHEMA
