"""The source of lines against a server that goes away and comes back, and through the part of PySpark that asks it."""

from __future__ import annotations

import io
import json
import logging
import pickle
import socket
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceStreamReader
from pyspark.sql.datasource_internal import _streamReader
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

import spark_ckpt
from spark_ckpt.api.socket_lines import Server, SocketLines
from spark_ckpt.api.socket_source import RetryingSocket, SocketReader, parse
from spark_ckpt.errors import ConfigError
from tests.drivers.line_server import LineServer

LIMIT = ReadAllAvailable()


@pytest.fixture
def server() -> Iterator[LineServer]:
    with LineServer() as made:
        yield made


@pytest.fixture
def reader_of(server: LineServer) -> Iterator[Callable[..., SocketReader]]:
    made: list[SocketReader] = []

    def make(retries: int = -1, delay_s: float = 0.01, with_time: bool = False) -> SocketReader:
        made.append(SocketReader(Server("127.0.0.1", server.port, retries, delay_s), with_time))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def connect(reader: SocketReader, server: LineServer, at: int = 0) -> None:
    assert reader.latestOffset({"lines": at}, LIMIT) == {"lines": at}
    server.until_connected()


def epoch(reader: SocketReader, start: int, lines: int) -> list[str]:
    """What an epoch of so many lines has, as executors would read it."""
    end = {"lines": start}

    def there() -> bool:
        end.update(reader.latestOffset({"lines": start}, LIMIT))
        return end["lines"] == start + lines

    until(there)
    return rows(reader, start, end["lines"])


def rows(reader: SocketReader, start: int, end: int) -> list[str]:
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions({"lines": start}, {"lines": end})]
    return [row[0] for part in parts for row in reader.read(part)]


def test_lines_go_on_after_the_server_was_away(server: LineServer, reader_of: Callable[..., SocketReader]) -> None:
    reader = reader_of()
    assert reader.initialOffset() == {"lines": 0}
    connect(reader, server)
    server.send("a", "b\r", "\N{SNOWMAN}")
    assert epoch(reader, 0, 3) == ["a", "b", "\N{SNOWMAN}"]
    server.go_away()
    assert reader.latestOffset({"lines": 3}, LIMIT) == {"lines": 3}
    time.sleep(0.1)
    server.come_back()
    server.until_connected(2)
    server.send("c")
    assert epoch(reader, 3, 1) == ["c"]
    server.hang_up()
    server.until_connected(3)
    server.send("d")
    assert epoch(reader, 4, 1) == ["d"]


def test_half_a_line_is_dropped_with_its_connection(
    server: LineServer, reader_of: Callable[..., SocketReader], caplog: pytest.LogCaptureFixture
) -> None:
    """Glued to what the next connection begins with, it would be a line that nobody has sent."""
    reader = reader_of()
    connect(reader, server)
    server.send_bytes(b"whole\nha")
    assert epoch(reader, 0, 1) == ["whole"]
    server.send_bytes(b"lf")
    until(lambda: len(rows(reader, 0, 1)) == 1)
    server.hang_up()
    server.until_connected(2)
    server.send("next")
    assert epoch(reader, 1, 1) == ["next"]
    assert "4 bytes of a line that has no end are dropped: the server has closed the connection" in caplog.text


def test_a_line_may_come_in_pieces(server: LineServer, reader_of: Callable[..., SocketReader]) -> None:
    reader = reader_of()
    connect(reader, server)
    for piece in (b"o", b"ne", b"\ntw", b"o\n", b"\n"):
        server.send_bytes(piece)
        time.sleep(0.01)
    assert epoch(reader, 0, 3) == ["one", "two", ""]


def test_an_epoch_gives_its_lines_again_until_the_next_one_is_asked_for(
    server: LineServer, reader_of: Callable[..., SocketReader], caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that is run again in place, because an executor was lost."""
    reader = reader_of()
    connect(reader, server)
    server.send("a", "b")
    assert epoch(reader, 0, 2) == rows(reader, 0, 2) == ["a", "b"]
    server.send("c")
    assert epoch(reader, 2, 1) == ["c"]
    assert caplog.text == ""
    assert rows(reader, 0, 2) == []
    assert "2 lines are lost" in caplog.text


def test_after_a_restart_planned_lines_are_lost_and_counted_and_numbers_go_on(
    server: LineServer, reader_of: Callable[..., SocketReader], caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of()
    with caplog.at_level(logging.WARNING):
        assert rows(reader, 7, 10) == []
    assert "3 lines are lost: they had come for an epoch that runs again" in caplog.text
    connect(reader, server, 10)
    server.send("x")
    assert epoch(reader, 10, 1) == ["x"]


def test_retries_end_when_none_has_given_a_line(server: LineServer, reader_of: Callable[..., SocketReader]) -> None:
    reader = reader_of(retries=2)
    connect(reader, server)
    for times in range(2, 5):  # each gives a line: the count begins anew
        server.send("a line")
        server.hang_up()
        server.until_connected(times)
    server.go_away()
    assert epoch(reader, 0, 3) == ["a line"] * 3, "what came before comes first"

    with pytest.raises(ConnectionError, match=r"no line in 3 connections or attempts.*ConnectionRefusedError.*maxNumRetries=2"):
        until(lambda: reader.latestOffset({"lines": 3}, LIMIT) != {"lines": 3})


def test_a_server_that_never_came_up_is_waited_for(server: LineServer, reader_of: Callable[..., SocketReader]) -> None:
    server.go_away()
    reader = reader_of()
    assert reader.latestOffset({"lines": 0}, LIMIT) == {"lines": 0}
    time.sleep(0.1)
    server.come_back()
    server.until_connected()
    server.send("a")
    assert epoch(reader, 0, 1) == ["a"]


def test_log_lines_grow_rarer(server: LineServer, reader_of: Callable[..., SocketReader], caplog: pytest.LogCaptureFixture) -> None:
    server.go_away()
    reader = reader_of(delay_s=0.001)
    reader.latestOffset({"lines": 0}, LIMIT)
    until(lambda: "attempt 64" in caplog.text)
    server.come_back()
    server.until_connected()
    server.send("a")
    assert epoch(reader, 0, 1) == ["a"]
    assert "lines come again" in caplog.text
    assert len(caplog.records) < 20


def test_the_time_of_arrival(server: LineServer, reader_of: Callable[..., SocketReader]) -> None:
    reader = reader_of(with_time=True)
    before = datetime.now(UTC)
    connect(reader, server)
    server.send("a")
    epoch(reader, 0, 1)
    ((text, at),) = reader.read(*reader.partitions({"lines": 0}, {"lines": 1}))
    assert text == "a"
    assert before <= at <= datetime.now(UTC)


def test_what_nobody_takes_is_not_read(server: LineServer) -> None:
    lines = SocketLines(Server("127.0.0.1", server.port), 0, max_bytes=10_000)
    try:
        server.until_connected()
        server.send(*["x" * 100] * 1000)
        until(lambda: lines.end(0) > 50)
        time.sleep(0.05)
        held = lines.end(0)
        assert held < 70
        lines.forget(held)
        until(lambda: lines.end(0) > held)
        assert len(lines.between(held, held + 1)) == 1
        assert lines.between(0, held) == []
    finally:
        lines.close()


def test_what_has_no_lines_ends_it(server: LineServer) -> None:
    lines = SocketLines(Server("127.0.0.1", server.port), 5, max_bytes=1000)
    try:
        server.until_connected()
        server.send_bytes(b"x" * 2000)

        with pytest.raises(ValueError, match="no line has ended within 1000 bytes"):
            until(lambda: lines.end(5) != 5)
    finally:
        lines.close()


def test_many_lines_go_to_many_tasks(server: LineServer, reader_of: Callable[..., SocketReader]) -> None:
    reader = reader_of()
    connect(reader, server)
    server.send(*[str(n) + "y" * 50_000 for n in range(40)])
    assert epoch(reader, 0, 40) == [str(n) + "y" * 50_000 for n in range(40)]
    assert 3 <= len(reader.partitions({"lines": 0}, {"lines": 40})) <= 6


def test_a_silent_machine_is_asked_whether_it_lives(server: LineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    connected = list[socket.socket]()
    made = socket.create_connection

    def remembered(address: tuple[str, int], timeout: float) -> socket.socket:
        connected.append(made(address, timeout))
        return connected[-1]

    monkeypatch.setattr(socket, "create_connection", remembered)
    lines = SocketLines(Server("127.0.0.1", server.port), 0)
    try:
        server.until_connected()
        server.send("a")
        until(lambda: lines.end(0) == 1)
        assert connected[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected[0].gettimeout() is None
    finally:
        lines.close()


def call(function: Callable[..., None], reader: DataSourceStreamReader, *sent: object, **more: object) -> bytes:
    """Ask as the JVM does: JSON with its length goes in, what comes back is given back."""
    texts = [json.dumps(one).encode() for one in sent]
    said, answer = io.BytesIO(b"".join(len(text).to_bytes(4, "big") + text for text in texts)), io.BytesIO()
    streams = {"infile": said} if sent else {}
    function(reader, outfile=answer, **streams, **more)
    return answer.getvalue()


def test_sparks_own_process_asks_it(server: LineServer) -> None:
    """Through PySpark's half of the reader and of the task."""
    options = CaseInsensitiveDict({"host": "127.0.0.1", "port": str(server.port), "includeTimestamp": "true"})
    source = pickle.loads(pickle.dumps(RetryingSocket))(options)
    schema = source.schema()
    reader = _streamReader(source, schema)
    try:
        flags = call(runner.check_support_func, reader)
        assert int.from_bytes(flags, "big") == runner.SUPPORTS_ADMISSION_CONTROL | runner.SUPPORTS_TRIGGER_AVAILABLE_NOW
        assert json.loads(call(runner.get_default_read_limit_func, reader)[4:]) == {"_type": "ReadAllAvailable"}
        start = json.loads(call(runner.initial_offset_func, reader)[4:])
        limit = {"_type": "ReadAllAvailable"}
        assert json.loads(call(runner.latest_offset_admission_control_func, reader, start, limit)[4:]) == start
        server.until_connected()
        server.send("a", "b")
        ends: list[dict[str, int]] = []

        def there() -> bool:
            ends.append(json.loads(call(runner.latest_offset_admission_control_func, reader, start, limit)[4:]))
            return ends[-1]["lines"] == 2

        until(there)
        answer = call(runner.partitions_func, reader, start, ends[-1], data_source=source, schema=schema, max_arrow_batch_size=100)
        assert int.from_bytes(answer[:4], "big") == 1
        assert int.from_bytes(answer[-4:], "big") == runner.PREFETCHED_RECORDS_NOT_FOUND
        part = pickle.loads(answer[8:-4])
        there_too = _streamReader(source, schema)
        (batch,) = records_to_arrow_batches(iter(there_too.read(part)), 100, schema, source)
        assert batch.column("value").to_pylist() == ["a", "b"]
        assert all(abs(at.timestamp() - time.time()) < 60 for at in batch.column("timestamp").to_pylist())
        call(runner.commit_func, reader, ends[-1])
        with pytest.raises(ConfigError, match="availableNow"):
            call(runner.prepare_for_trigger_available_now_func, reader)
    finally:
        reader.stop()


def test_options() -> None:
    given = {"HOST": "h", "port": "7", "maxNumRetries": "3", "delayBetweenRetries": "2s", "includeTimestamp": "TRUE"}
    assert parse(given) == (Server("h", 7, 3, 2.0), True)
    assert parse({"host": "h", "port": "7"}) == (Server("h", 7, -1, 0.5), False)
    assert RetryingSocket(given).schema().simpleString() == "struct<value:string,timestamp:timestamp>"
    source = RetryingSocket({"host": "h", "port": "7"})
    assert (source.schema().simpleString(), source.name()) == ("struct<value:string>", "retrying-socket")
    reader = source.streamReader(StructType())
    assert isinstance(reader, SocketReader)
    reader.stop()
    with pytest.raises(ConfigError, match="trigger availableNow"):
        reader.prepareForTriggerAvailableNow()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"port": "7"}, "needs the option 'host'"),
        ({"host": "h"}, "needs the option 'port'"),
        ({"host": "h", "port": "70000"}, "port='70000' is not a whole number from 1 to 65535"),
        ({"host": "h", "port": "http"}, "port='http'"),
        ({"host": "h", "port": "9_999"}, "port='9_999' is not a whole number"),
        ({"host": "h", "port": "٩٩"}, "is not a whole number"),
        ({"host": "a..b", "port": "7"}, "host='a..b' is no name of a machine"),
        ({"host": "h", "port": "7", "delayBetweenRetries": "2d"}, "more than a day"),
        ({"host": "h", "port": "7", "delayBetweenRetries": "0ms"}, "delayBetweenRetries='0ms' is less than 100ms"),
        ({"host": "h", "port": "7", "delayBetweenRetries": "99ms"}, "delayBetweenRetries='99ms' is less than 100ms"),
        ({"host": "h", "port": "7", "maxNumRetries": "-2"}, "maxNumRetries='-2' is not a whole number of at least -1"),
        ({"host": "h", "port": "7", "maxRetries": "2"}, "no option 'maxretries'; its options are host, port, maxNumRetries"),
        ({"host": "h", "port": "7", "delayBetweenRetries": "soon"}, "delayBetweenRetries='soon'"),
        ({"host": "h", "port": "7", "includeTimestamp": "yes"}, "includeTimestamp='yes'"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse(given)


def test_a_pyspark_that_has_no_such_sources_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delitem(sys.modules, "spark_ckpt.api.socket_source")
    assert not hasattr(spark_ckpt, "RetryingSocket")
    with pytest.raises(ConfigError, match=r"the source retrying-socket needs .* PySpark has since 4\.2; install that"):
        _ = spark_ckpt.RetryingSocket
