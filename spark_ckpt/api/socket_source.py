"""A source of lines that outlives its server: `spark.readStream.format("retrying-socket")`.

Where what runs, in Spark 4.3 (`pyspark/sql/streaming/python_streaming_source_runner.py`): the reader lives in a Python process beside the
driver, one for each start of a query, and is asked for offsets and partitions there. Partitions go to the executors, pickled, with the
lines in them; `read` runs there, in another process that knows nothing of the connection. Spark calls `commit` only when it plans the
next epoch with new data, so what is kept is forgotten when it asks for the next offset: by then the epoch before has ended.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from spark_ckpt.api.socket_lines import LINE_BYTES, NAME, Line, Server, SocketLines
from spark_ckpt.errors import ConfigError
from spark_ckpt.units import parse_duration

try:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
except ImportError as e:
    raise ConfigError(f"the source {NAME} needs sources in Python that take limits, which PySpark has since 4.2; install that") from e

_PARTITION_BYTES = 512 * 1024
"""Of lines in one task: Spark warns of tasks above 1 MB."""
_OPTIONS = ("host", "port", "maxNumRetries", "delayBetweenRetries", "includeTimestamp")
_SHORTEST_MS = 100
"""A server that takes connections and closes them would be asked without a pause."""
_LONGEST_MS = 24 * 60 * 60 * 1000
_AT = "lines"

_log = logging.getLogger(__name__)


class RetryingSocket(DataSource):
    """Lines of text from a TCP server, with a connection that is made again when it is lost. Nothing replays.

    Options: `host`, `port`; `maxNumRetries`, connections or attempts in a row that give no line, -1 (the default) without a limit;
    `delayBetweenRetries` before each, `500ms` by default, `100ms` at least; `includeTimestamp`, `true` for a column with the time of
    arrival.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._server, self._with_time = parse(options)

    def schema(self) -> StructType:
        value, arrived = StructField("value", StringType()), StructField("timestamp", TimestampType())
        return StructType([value, arrived] if self._with_time else [value])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return SocketReader(self._server, self._with_time)


def parse(options: Mapping[str, str]) -> tuple[Server, bool]:
    """The server, and whether the time of arrival is wanted. Raises `ConfigError`."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in _OPTIONS}
    for name in given:
        if name not in known:
            raise ConfigError(f"{NAME} has no option {name!r}; its options are {', '.join(_OPTIONS)}")
    for name in ("host", "port"):
        if not given.get(name):
            raise ConfigError(f"{NAME} needs the option {name!r}: whose lines are to be read?")
    try:
        given["host"].encode("idna")
    except UnicodeError as e:
        raise ConfigError(f"{NAME}: host={given['host']!r} is no name of a machine: {e}") from None
    port = _whole(given, "port", None, 1, 65535)
    retries = _whole(given, "maxNumRetries", -1, -1, None)
    text = given.get("delaybetweenretries", "500ms")
    try:
        delay_ms = parse_duration(text)
    except ValueError as e:
        raise ConfigError(f"{NAME}: delayBetweenRetries={text!r} is not {e}") from None
    if delay_ms < _SHORTEST_MS:
        raise ConfigError(f"{NAME}: delayBetweenRetries={text!r} is less than {_SHORTEST_MS}ms: that asks a server without a pause")
    if delay_ms > _LONGEST_MS:
        raise ConfigError(f"{NAME}: delayBetweenRetries={text!r} is more than a day")
    with_time = given.get("includetimestamp", "false").lower()
    if with_time not in ("true", "false"):
        raise ConfigError(f"{NAME}: includeTimestamp={with_time!r} is neither true nor false")
    return Server(given["host"], port, retries, delay_ms / 1000), with_time == "true"


def _whole(given: Mapping[str, str], name: str, default: int | None, least: int, most: int | None) -> int:
    text = given.get(name.lower(), str(default))
    number = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else least - 1
    if number < least or (most is not None and number > most):
        wanted = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ConfigError(f"{NAME}: {name}={text!r} is not a whole number {wanted}")
    return number


class SocketLinesPartition(InputPartition):
    """What one task gets."""

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__(None)
        self.lines = tuple((line.text, line.received_s) for line in lines)


class SocketReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the number of lines that a stream has ever taken, whatever became of its servers and drivers meanwhile."""

    def __init__(self, server: Server, with_time: bool) -> None:
        self._server, self._with_time = server, with_time
        self._lines: SocketLines | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {_AT: 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """Raises `ConnectionError` when all retries were in vain, and everything that came before has been taken."""
        at = start[_AT]
        if self._lines is None:
            self._lines = SocketLines(self._server, at)
        self._lines.forget(at)
        return {_AT: self._lines.end(at)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[SocketLinesPartition]:
        first, behind = start[_AT], end[_AT]
        lines = self._lines.between(first, behind) if self._lines is not None else []
        if lost := behind - first - len(lines):
            _log.warning(
                "%s: %d lines are lost: they had come for an epoch that runs again, and a socket gives nothing twice", self._server, lost
            )
        return [SocketLinesPartition(part) for part in _parts(lines)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, SocketLinesPartition)
        for text, received_s in partition.lines:
            yield (text, datetime.fromtimestamp(received_s, UTC)) if self._with_time else (text,)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        raise ConfigError(f"{NAME} has no end at which the trigger availableNow could stop; use a processingTime trigger")

    def stop(self) -> None:
        if self._lines is not None:
            self._lines.close()


def _parts(lines: Sequence[Line]) -> Iterator[list[Line]]:
    part, size = list[Line](), 0
    for line in lines:
        part.append(line)
        size += len(line.text) + LINE_BYTES
        if size >= _PARTITION_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
