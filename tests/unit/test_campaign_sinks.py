"""What sinks see: the cases, what a line of them says and the page makes of it, and what a reader of numbered records keeps."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaign import record, tested
from campaign.comparison import Comparison, counted
from campaign.dimensions import Mode
from campaign.sinks import running
from campaign.sinks.dimensions import IDEMPOTENT, STRIKES, Group, SinkCase, SinkKind, Strike, cases, forbidden_twice
from campaign.sinks.holdings import Held, again, in_files
from campaign.sinks.topics import NumberError, Record, Topics, once
from campaign.sinks.trial import SinkResult, Struck
from campaign.trial import Observed, Outcome
from documents import seen_by_sinks
from documents.places import GUARANTEES, SINKS

SCHEMA = jsonschema.Draft202012Validator(json.loads(record.SCHEMA.read_text()))
RIGHT, TWICE = Comparison(100, 0, 0, 0), Comparison(100, 0, 0, 44)


code = functools.cache(tested.code_of_sinks)


@pytest.fixture(autouse=True)
def _looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a case is made of takes a while to read."""
    monkeypatch.setattr(tested, "code_of_sinks", code)


@pytest.fixture
def result() -> SinkResult:
    held = [Held(sink, RIGHT if sink in IDEMPOTENT else TWICE) for sink in SinkKind]
    held[-1] = replace(held[-1], in_topic=TWICE)
    twice = {sink: (0 if sink in IDEMPOTENT else 44, 44 if sink is SinkKind.NUMBERED else None) for sink in SinkKind}
    kills = [Struck(strike, Observed(31.5, 20, ""), dict.fromkeys(SinkKind, 3), twice) for strike in (Strike.DRIVER, Strike.MACHINE)]
    return SinkResult(SinkCase(Mode.INTERVAL, Group.DRIVER), Outcome.EQUAL, held, kills, files=12, seconds=80.0)


def test_every_kill_meets_every_mode() -> None:
    met = {(case.mode, strike) for case in cases() for strike in STRIKES[case.group]}
    assert met == {(mode, strike) for mode in Mode for strike in Strike}
    assert len({running.folder_of(case) for case in cases()}) == len(cases())


def test_a_line_is_as_its_schema_says(result: SinkResult, tmp_path: Path) -> None:
    path = tmp_path / "sinks.jsonl"
    record.append(path, record.sinks_line(result))
    (line,) = record.read(path)
    SCHEMA.validate(line)
    assert line["code"] == tested.code_of_sinks()
    SCHEMA.validate(record.sinks_line(replace(result, outcome=Outcome.HUNG, held=[], text="no epoch for 600 s")))


@pytest.mark.parametrize("sink", SinkKind)
@pytest.mark.parametrize("mode", Mode)
def test_the_schema_knows_which_sinks_hold_nothing_twice(result: SinkResult, mode: Mode, sink: SinkKind) -> None:
    held = [replace(one, rows=TWICE) if one.sink is sink else one for one in result.held]
    line = record.sinks_line(replace(result, case=SinkCase(mode, Group.EXECUTORS), held=held))
    assert SCHEMA.is_valid(line) != forbidden_twice(mode, sink)


@pytest.mark.parametrize("wrong", [Comparison(100, 1, 0, 0), Comparison(100, 0, 1, 0)], ids=["missing", "excess"])
def test_the_schema_refuses_an_equal_case_with_a_difference(result: SinkResult, wrong: Comparison) -> None:
    for n, one in enumerate(result.held):
        held = [*result.held[:n], replace(one, rows=wrong), *result.held[n + 1 :]]
        assert not SCHEMA.is_valid(record.sinks_line(replace(result, held=held)))
    lost = [*result.held[:-1], replace(result.held[-1], in_topic=wrong)]
    assert not SCHEMA.is_valid(record.sinks_line(replace(result, held=lost)))
    assert not SCHEMA.is_valid(record.sinks_line(replace(result, held=result.held[:-1])))


def test_what_is_done_for_this_code_is_not_done_again(result: SinkResult, tmp_path: Path) -> None:
    path = tmp_path / "sinks.jsonl"
    record.append(path, {**record.sinks_line(result), "mode": Mode.EVERY_EPOCH.value, "code": "0" * 12})
    assert running.left(path) == cases()
    record.append(path, record.sinks_line(result))
    assert running.left(path) == [case for case in cases() if case != result.case]


def test_the_tables_have_the_last_run_of_each_case(result: SinkResult) -> None:
    line: dict[str, Any] = record.sinks_line(result)
    worse = {**line, "code": "0" * 12, "sinks": [{**one, "missing": 7} for one in line["sinks"]]}
    text = seen_by_sinks.tables([worse, line])
    assert "| | **driver** | **machine** | **executors** | **executors, writing** | **coordinator** | **agent** |" in text
    assert "| Kafka | 44 | 44 | · | · | · | · |" in text
    assert "| Kafka, numbered: in the topic | 44 | 44 | · | · | · | · |" in text
    assert "| Kafka, numbered: what its reader keeps | 0 | 0 | · | · | · | · |" in text
    assert "| *epochs that no checkpoint held at the kill* | 3 | 3 | · | · | · | · |" in text
    assert "**2 kills, 600 rows expected in all sinks together, 0 missing, 0 in excess.**" in text
    assert "Not measured yet (·): every epoch: **driver** and **machine**; at-least-once: **driver** and **machine**; every" in text
    assert "interval: **driver**" not in text
    assert "interval, driver: ended" in seen_by_sinks.tables([{**line, "outcome": "ended"}])
    assert "None is recorded yet." in seen_by_sinks.tables([])


def test_the_page_has_the_tables_of_the_results() -> None:
    text = GUARANTEES.read_text(encoding="utf-8")
    assert text == seen_by_sinks.renewed(text, seen_by_sinks.read(SINKS)), "docs/guarantees.md is stale: run `python -m documents`"


def test_every_recorded_line_is_as_the_schema_says() -> None:
    for line in record.read(record.SINKS):
        SCHEMA.validate(line)


def test_of_the_file_sink_only_what_its_log_names_counts(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name in ("a b", "lost", "c"):
        (tmp_path / f"part-{name}.json").write_text('{"id": 1}\n')
    named = [json.dumps({"path": f"file://{tmp_path}/part-{name}.json"}) for name in ("a%20b", "c")]
    (log / "9.compact").write_text("\n".join(["v1", named[0]]))
    (log / "9").write_text("\n".join(["v1", named[0]]))
    (log / "10").write_text("\n".join(["v1", named[1]]))
    (log / ".11.tmp").write_text("v1\n{")
    assert in_files(tmp_path) == [[{"id": 1}], [{"id": 1}]]
    assert again(counted(row for part in in_files(tmp_path) for row in part)) == 1
    assert in_files(tmp_path / "nothing") == []


def record_of(epoch: int, row: int, partition: int = 0) -> Record:
    return Record(partition, {"epoch": epoch, "row": row}, [("epoch", str(epoch).encode()), ("row", str(row).encode()), ("other", b"x")])


def kept(numbers: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(one.value["epoch"], one.value["row"]) for one in once(record_of(*number) for number in numbers)]


@st.composite
def written(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Rows of each epoch, and what comes to one partition of a topic: runs that begin again at some epoch, each cut off in the middle of
    one, of which two attempts may have been at work at the same time; the last run ends."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
    came: list[tuple[int, int]] = []
    reached = 0
    for last in [*draw(st.lists(st.just(False), max_size=4)), True]:
        first = draw(st.integers(0, reached))
        end = len(sizes) if last else draw(st.integers(first, len(sizes) - 1))
        for epoch in range(first, end):
            came += [(epoch, row + 1) for row in range(sizes[epoch])]
        if not last:
            attempts = [[(end, row + 1) for row in range(draw(st.integers(0, sizes[end])))] for _ in range(draw(st.integers(1, 2)))]
            while any(attempts):
                came.append(draw(st.sampled_from([attempt for attempt in attempts if attempt])).pop(0))
            reached = max(reached, end)
    return sizes, came


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(written())
def test_a_reader_of_numbered_records_keeps_each_row_once(case: tuple[list[int], list[tuple[int, int]]]) -> None:
    sizes, came = case
    assert kept(came) == [(epoch, row + 1) for epoch, size in enumerate(sizes) for row in range(size)]


def test_partitions_are_numbered_apart() -> None:
    came = [record_of(0, 1, 0), record_of(0, 1, 1), record_of(0, 1, 0), record_of(0, 2, 1)]
    assert [one.partition for one in once(iter(came))] == [0, 1, 1]


@pytest.mark.parametrize("numbers", [[(0, 1), (0, 3)], [(0, 1), (1, 2)]], ids=["in an epoch", "at its begin"])
def test_a_number_that_was_left_out_is_an_error(numbers: list[tuple[int, int]]) -> None:
    """Another content under the numbers of the first try: what the reader would drop is not what it has."""
    with pytest.raises(NumberError, match="partition 0: row"):
        kept(numbers)
    assert kept([(5, 7), (5, 8), (6, 1)]) == [(5, 7), (5, 8), (6, 1)], "a reader may begin anywhere"
    assert all(a < b for a, b in pairwise(kept([(5, 7), (5, 8), (6, 1)])))


class Asked:
    """A consumer that is told these errors first."""

    def __init__(self, *codes: int) -> None:
        self.left = list(codes)

    def get_watermark_offsets(self, _partition: TopicPartition, timeout: float) -> tuple[int, int]:
        if self.left:
            raise KafkaException(KafkaError(self.left.pop(0)))
        return 0, 7


def test_a_topic_that_was_just_made_has_no_leader_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaign.sinks.topics.SOON_S", 0)
    topics = Topics("localhost:1", 2)
    monkeypatch.setattr(topics, "_consumer", Asked(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE))
    assert topics.ends("new") == [7, 7]
    monkeypatch.setattr(topics, "_consumer", Asked(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException):
        topics.ends("new")
