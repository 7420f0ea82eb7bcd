"""Log entries: what is written is read back, and what cannot be an entry is refused by name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import FormatError
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol.entries import (
    LIMITS,
    MAX_ADOPTED,
    Adopted,
    Claim,
    Damage,
    End,
    Entry,
    Plan,
    Request,
    Restored,
    as_adopted,
    decode,
    encode,
)
from tests.drivers.protocol_driving import JOB

ids = st.builds(CheckpointId, st.integers(1, 99), st.integers(0, 10**6))
names = st.from_regex(r"(offsets|commits|sources/0|state/0)/[a-z0-9]{1,4}", fullmatch=True)
entries = st.one_of(
    st.builds(
        Claim,
        st.integers(1, 100),
        st.integers(1, 99),
        st.text(),
        st.just(JOB),
        st.none() | ids,
        st.lists(ids, max_size=4).map(tuple),
        st.lists(ids, max_size=4).map(tuple),
        st.text(),
        st.dictionaries(st.text(), st.text(), max_size=3),
        st.integers(0, 2**45),
        st.text(),
        st.none() | st.builds(Restored, st.text(), st.none() | ids, st.booleans()),
        unsure=st.lists(ids, max_size=2).map(tuple),
    ),
    st.builds(
        Plan,
        st.integers(1, 100),
        st.integers(1, 99),
        st.integers(0, 10**6),
        st.binary(),
        st.dictionaries(names, st.none() | st.binary(), max_size=4),
        st.booleans(),
    ),
    st.builds(Request, st.integers(1, 100), st.text(), st.text(), st.text(), st.text(), st.booleans(), st.text()),
    st.builds(Damage, st.integers(1, 100), st.integers(1, 9), st.lists(ids, max_size=3).map(tuple), st.text()),
    st.builds(End, st.integers(1, 100), st.integers(1, 9)),
)


@given(entries)
def test_an_entry_is_read_back_as_it_was_written(entry: Entry) -> None:
    number = entry.claim if isinstance(entry, Claim) else entry.claim + 3
    assert decode(number, encode(entry)) == entry


@given(st.binary(max_size=200))
def test_whatever_is_stored_is_an_entry_or_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode(1, data)


PLAN = json.loads(encode(Plan(1, 1, 0, b"v1\n{}")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": 5}, "format version 5"),
        ({"v": "1"}, "no version"),
        ({"type": "plane"}, "plane"),
        ({"epoch": -1}, "malformed"),
        ({"epoch": True}, "malformed"),
        ({"claim": 9}, "cannot be before it"),
        ({"claim": 0}, "claim 0"),
        ({"files": {"sources/0/1": {"object": "run-00000001/seg/1-a", "length": 1, "checksum": 2}}}, "not that of a file of the driver"),
        ({"files": {"sources/0/1": {"object": f"run-00000001/drv/1-{'a' * 32}", "length": -1, "checksum": 2}}}, "malformed"),
        ({"files": {"sources/0/1": {"object": f"run-00000001/drv/1-{'a' * 32}", "length": 1, "checksum": 2**32}}}, "malformed"),
        ({"files": {"sources/0/1": {"object": f"run-00000001/drv/1-{'a' * 32}"}}}, "malformed"),
        ({"files": {"../../etc/passwd": "x"}}, "leave its folder"),
        ({"files": {"file:/etc/cron.d/x": "x"}}, "is not below offsets"),
        ({"files": {"metadata": "x"}}, "is not below offsets"),
        ({"files": {"sources": "x"}}, "is not below offsets"),
        ({"files": {"sources/0/1": {"base64": "§"}}}, "malformed"),
        ({"files": 7}, "malformed"),
        ({"offsets": None}, "malformed"),
    ],
)
def test_a_forged_or_newer_entry_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode(5, json.dumps({**PLAN, **change}).encode())


CLAIM = json.loads(encode(Claim(5, 2, "q", JOB, CheckpointId(1, 3), (), (), "h", {}, 7, "n")))


@pytest.mark.parametrize(
    "change",
    [
        {"origin": {"run": -1, "epoch": 3}},
        {"origin": {"run": 1, "epoch": "3"}},
        {"inherits": [{"run": 1.5, "epoch": 3}]},
        {"job": {"operators": [7], "sources": [], "sink": "s"}},
        {"job": {"operators": "stateStoreSave", "sources": [], "sink": "s"}},
        {"job": {"operators": [], "sources": [], "sink": None}},
        {"restored": {"path": 7, "imported": None, "owned": True}},
        {"restored": {"path": "s3://b/x", "imported": {"run": 1, "epoch": 10**30}, "owned": True}},
        {"versions": ["1"]},
        {"run": 10**30},
    ],
)
def test_a_forged_claim_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="malformed"):
        decode(5, json.dumps({**CLAIM, **change}).encode())


def test_plans_are_the_same_if_they_describe_the_same_data() -> None:
    one = Plan(1, 1, 7, b'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"a":1,"b":2}')
    assert one.same_data(Plan(9, 2, 7, b'v1\n{"conf":{}, "batchWatermarkMs":0}\n{"b":2,"a":1}'))
    assert not one.same_data(Plan(1, 1, 7, b'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"a":1,"b":3}'))
    assert not one.same_data(Plan(1, 1, 8, one.offsets))
    assert not one.same_data(Plan(1, 1, 7, b"v1\n" + b"[" * 100_000))


def test_who_keeps_the_state_is_no_part_of_what_is_read() -> None:
    def plan(conf: dict[str, str]) -> Plan:
        return Plan(1, 1, 7, b"v1\n" + json.dumps({"batchWatermarkMs": 0, "conf": conf}).encode() + b'\n{"logOffset":1}')

    provider = "spark.sql.streaming.stateStore.providerClass"
    one = plan({provider: "stock", "spark.sql.shuffle.partitions": "5"})
    assert one.same_data(plan({provider: "ours", "spark.sql.shuffle.partitions": "5"}))
    assert not one.same_data(plan({provider: "stock", "spark.sql.shuffle.partitions": "6"}))


def test_entries_without_the_fields_that_came_later_are_read() -> None:
    claim = Claim(5, 2, "q", JOB, None, (), (), "h", {}, 7, "n")
    request = Request(5, "savepoint", "", "me")
    for entry, number, added in ((claim, 5, ("restored",)), (request, 6, ("name", "drain", "nonce"))):
        doc = json.loads(encode(entry))
        old = {key: value for key, value in doc.items() if key not in added}
        assert len(old) == len(doc) - len(added)
        assert decode(number, json.dumps(old).encode()) == entry


def claim_with(*adopts: Adopted, number: int = 30_000_000) -> Claim:
    return Claim(number, 2, "q", JOB, None, (), (), "h", {}, 0, "n", adopts=adopts)


@pytest.mark.parametrize("adopts", [(), (Adopted(1, 3, 0), Adopted(4, 1, 9)), (Adopted(5, MAX_ADOPTED, 7),)])
def test_what_a_claim_adopts_is_read_as_it_was_written(adopts: tuple[Adopted, ...]) -> None:
    claim = claim_with(*adopts)
    assert decode(claim.claim, encode(claim)) == claim


@pytest.mark.parametrize(
    "adopts", [(Adopted(5, MAX_ADOPTED + 1, 7),), tuple(Adopted(2 * n, 1, n) for n in range(1, LIMITS.items + 2))], ids=["plans", "rows"]
)
def test_more_than_a_claim_can_name_is_refused_when_it_is_written(adopts: tuple[Adopted, ...]) -> None:
    with pytest.raises(FormatError, match="more than a claim can name; go on from the checkpoint without them"):
        encode(claim_with(*adopts))


@pytest.mark.parametrize(
    "rows",
    [[[0, 1, 0]], [[3, 1, 0], [2, 1, 1]], [[3, 2, 0], [4, 1, 2]], [[1, 0, 0]], [[5, 5, 0]], [[1, -1, 0]], [[1, 1]], [[1, 10**18, 0]]],
)
def test_forged_ranges_are_refused(rows: list[list[int]]) -> None:
    doc = {**json.loads(encode(claim_with(number=9))), "adopts": rows}
    with pytest.raises(FormatError, match="malformed"):
        decode(9, json.dumps(doc).encode())


def test_adopted_plans_are_named_in_few_rows() -> None:
    assert as_adopted({7: 3, 5: 1, 6: 2, 9: 4, 10: 6}) == (Adopted(5, 3, 1), Adopted(9, 1, 4), Adopted(10, 1, 6))
    assert claim_with(Adopted(5, 3, 1), Adopted(9, 1, 4)).adopted_past(2) == {7: 3, 9: 4}


def test_a_damaged_entry_names_a_way_out_that_keeps_the_state() -> None:
    """A new checkpointLocation alone begins with nothing."""
    with pytest.raises(FormatError, match="put the entry back as it was, or go on from one of the stream's checkpoints with"):
        decode(48, b'{"v": 3, "ty')


def test_a_number_that_no_stream_reaches_is_told_with_a_way_out() -> None:
    """What a forged claim says is carried on by the next one."""
    with pytest.raises(FormatError, match=r"is damaged or forged, most likely the last claim: go on from one of the stream's checkpoints"):
        encode(Plan(1, 1, 2**63 + 5, b""))
