"""What a person gives, and Spark itself never makes; keys that have to stay; and what a person is told."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_ckpt
from spark_ckpt.api import session
from spark_ckpt.errors import ConfigError, ConflictError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.state.changelogs import Change
from spark_ckpt.state.changes import comes_after
from spark_ckpt.state.dropping import Dropping
from spark_ckpt.state.entry_encoder import EntryEncoder
from spark_ckpt.state.reading import name_of
from spark_ckpt.state.rows import Encoding
from spark_ckpt.state.schemas import Family, KeyForm, KeyLayout, Operator, Store, Variable
from spark_ckpt.state.spark_types import Array, Atomic, Field, Map, SparkType, Struct
from spark_ckpt.state.unsafe_encoder import encode
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.metadata.codec import encode_metadata
from tests.drivers.planned_operators import operator_files
from tests.drivers.state_versions import StoreVersions
from tests.drivers.stored_stream import JOB
from tests.stored.earlier import place

PLAIN = KeyLayout(KeyForm.PLAIN)
TEXT, LONG, DOUBLE = Atomic("string"), Atomic("long"), Atomic("double")
NAN = float("nan")


def encoder(operator: str, key: Struct, value: Struct) -> EntryEncoder:
    return EntryEncoder(Operator(0, operator, ()), Family("default", key, value, PLAIN), Encoding(False, b""), False)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ({"k": "a"}, {"n": None, "of": {"x": None}}, "value.n"),
        ({"k": None}, {"n": 1, "of": {"x": 1}}, "key.k"),
        ({"k": "a"}, {"n": 1, "of": None}, None),
        ({"k": "a"}, {"n": 1, "of": {"x": None}}, "value.of.x"),
        ({"k": "a"}, None, "value"),
    ],
)
def test_null_where_sparks_schema_has_none_is_named(key: Any, value: Any, said: str | None) -> None:
    """What lies in a struct that is null itself says nothing."""
    of_key = Struct((Field("k", TEXT, nullable=False),))
    of_value = Struct((Field("n", LONG, nullable=False), Field("of", Struct((Field("x", LONG, nullable=False),)))))
    made = encoder("stateStoreSave", of_key, of_value)
    why = made.never_in_spark(made.checked(pa.RecordBatch.from_pylist([{"key": key, "value": value}], made.schema)))
    assert why == (said and f"{said} is null in a batch, and Spark's schema of the state says that it never is; give it a value")


@pytest.mark.parametrize(
    ("kind", "values", "where"),
    [
        (Map(TEXT, LONG), [[("a", 1), ("b", 1)], None, [("a", 1)]], None),
        (Map(TEXT, LONG), [[], [("a", 1)], [("b", 1), ("c", 2), ("b", 1)]], "value.m"),
        (Map(DOUBLE, LONG), [[(0.0, 1), (-0.0, 1)]], "value.m"),
        (Map(DOUBLE, LONG), [[(NAN, 1), (NAN, 2)]], "value.m"),
        (Map(TEXT, Map(TEXT, LONG)), [[("a", [("x", 1)]), ("b", [("x", 1)])]], None),
        (Map(TEXT, Map(TEXT, LONG)), [[("a", [("x", 1), ("x", 2)])]], "value.m.value"),
        (Array(Map(TEXT, LONG)), [[[("a", 1)], [("a", 1)]], None, []], None),
        (Array(Map(TEXT, LONG)), [None, [[("a", 1)], None, [("b", 1), ("b", 1)]]], "value.m.element"),
        (Struct((Field("n", Map(LONG, LONG)),)), [{"n": [(1, 1), (1, 2)]}], "value.m.n"),
        (Struct((Field("n", Map(LONG, LONG)),)), [{"n": [(1, 1), (2, 2)]}, None, {"n": None}], None),
    ],
)
def test_a_key_twice_in_a_map_is_named(kind: SparkType, values: list[Any], where: str | None) -> None:
    made = encoder("stateStoreSave", Struct((Field("k", LONG),)), Struct((Field("m", kind),)))
    rows = [{"key": {"k": n}, "value": {"m": value}} for n, value in enumerate(values)]
    said = where and f"{where} of a batch has a key more than once in one map; leave out the others"
    for batch in (pa.RecordBatch.from_pylist(rows, made.schema), pa.RecordBatch.from_pylist([rows[-1], *rows], made.schema).slice(1)):
        assert made.never_in_spark(made.checked(batch)) == said


def test_no_such_row_comes_into_a_savepoint(tmp_path: Path) -> None:
    """Neither by transform_state nor by write_state, and what was there may go on."""
    key, value = Struct((Field("key", TEXT),)), Struct((Field("tags", Map(TEXT, LONG)),))
    kind = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
    files = operator_files(0, "stateStoreSave", [("key", "string")], [("tags", kind)])
    url, tags = f"file://{tmp_path}/kept", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    with open_storage(url) as storage:
        entry = encode(key, [pa.array(["k"])], 1).slices(b"\0")[0], encode(value, [tags], 1).slices(b"\0")[0]
        made = StoreVersions(storage, files, {}).checkpoint([[(Change.PUT, *entry)]], 1).checkpoint
        ids = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[made.snapshots[0].uid]]}}
        commits = b"v2\n" + json.dumps(ids).encode()
        storage.put("_metadata", encode_metadata(replace(made, files={**made.files, "commits/1": commits})))

    def twice(batch: Any) -> Any:
        return pa.RecordBatch.from_pylist([{"key": {"key": "new"}, "value": {"tags": [("a", 1), ("a", 2)]}}], batch.schema.remove(2))

    why = r"value\.tags of a batch has a key more than once in one map; leave out the others"
    batch = next(iter(spark_ckpt.read_state(url)))
    with pytest.raises(ConfigError, match=why):
        spark_ckpt.transform_state(url, 0, twice)
    with pytest.raises(ConfigError, match=why):
        spark_ckpt.write_state(url, 0, twice(batch))
    assert spark_ckpt.read_state(spark_ckpt.transform_state(url, 0, lambda batch: batch.select(["key", "value"]))).to_table().num_rows == 1


def test_keys_that_stay_are_compared_by_their_bytes() -> None:
    """To Arrow NaN is not NaN, and -0.0 is 0.0."""
    made = encoder("symmetricHashJoin", Struct((Field("field0", DOUBLE), Field("index", LONG))), Struct((Field("n", LONG),)))

    def batch(*keys: float) -> pa.RecordBatch:
        rows = [{"key": {"field0": key, "index": 0}, "value": {"n": n}} for n, key in enumerate(keys)]
        return made.checked(pa.RecordBatch.from_pylist(rows, made.schema))

    made.check_keys(batch(NAN, -0.0, 1.0), batch(NAN, -0.0, 1.0))
    for others in ((NAN, 0.0, 1.0), (NAN, -0.0), (1.0, -0.0, NAN)):
        with pytest.raises(ConfigError, match="return the same rows in the same order"):
            made.check_keys(batch(NAN, -0.0, 1.0), batch(*others))


def test_a_state_variable_called_timers_does_not_hide_the_timers() -> None:
    key = Struct((Field("key", Struct()), Field("expiryTimestampMs", LONG)))
    timers = Family("$eventTimers_keyToTimestamp", key, Struct(), PLAIN, Variable.TIMER)
    own = Family("timers", Struct(), Struct(), PLAIN, Variable.VALUE)
    assert name_of(Store("default", 1, (timers,), True), timers) == "timers"
    both = Store("default", 1, (own, timers), True)
    assert [name_of(both, family) for family in both.families] == ["timers", "$eventTimers_keyToTimestamp"]


def test_an_operator_without_keys_has_none_to_drop(tmp_path: Path) -> None:
    value = encode(Struct((Field("n", LONG),)), [pa.array([7])], 1).slices(b"\0")
    files = operator_files(0, "stateStoreSave", [], [("n", "long")])
    with open_storage(f"file://{tmp_path}/stream") as storage, open_storage(f"file://{tmp_path}/made") as target:
        state = StoreVersions(storage, files, {}).checkpoint([[(Change.PUT, b"\0" + b"\0" * 8, value[0])]], 1)
        with pytest.raises(ConfigError, match="groups by no key, so there is none to choose by; transform_state"):
            Dropping(storage, state, state.operators[0], target).drop(lambda _: pa.array([True]))
    assert not (tmp_path / "made").exists()


def test_a_data_frame_is_taken_and_keys_that_are_there_are_named(tmp_path: Path) -> None:
    place("1", tmp_path / "stream")
    stream = f"file://{tmp_path}/stream"
    rows = spark_ckpt.read_state(stream).to_table().drop(["partition_id"])
    with pytest.raises(ConflictError, match="are in the state already, and each key has one value"):
        spark_ckpt.write_state(stream, 0, rows)
    made = spark_ckpt.write_state(stream, 0, rows.to_pandas(), mode="overwrite")
    assert Counter(map(str, spark_ckpt.read_state(made).to_table().to_pylist())) == Counter(
        map(str, spark_ckpt.read_state(stream).to_table().to_pylist())
    )


def test_who_drops_nothing_is_warned(tmp_path: Path) -> None:
    place("1", tmp_path / "stream")
    with pytest.warns(UserWarning, match="no key of operator 0 was chosen, so file:"):
        spark_ckpt.drop_keys(f"file://{tmp_path}/stream", 0, lambda keys: pc.equal(keys.column(0), "nobody"))
    with pytest.raises(ConfigError, match=r"returned BooleanArray of 1 for \d+ keys"):
        spark_ckpt.drop_keys(f"file://{tmp_path}/stream", 0, lambda _: pa.array([True]))


def test_what_was_rescaled_is_compared_by_its_epoch() -> None:
    """Its run is nobody's."""

    def checkpoint(run: int, epoch: int, claim: int) -> Checkpoint:
        return Checkpoint(CheckpointId(run, epoch), 0, claim, "query", 0, JOB, {}, (), {})

    assert not comes_after(checkpoint(2, 12, 5), checkpoint(1, 15, 0))
    assert comes_after(checkpoint(1, 15, 0), checkpoint(2, 12, 5))
    assert comes_after(checkpoint(2, 12, 5), checkpoint(1, 15, 3))


def test_an_option_with_its_prefix_is_written_without_it() -> None:
    with pytest.raises(ConfigError, match=r"is written s3_path_style= here, without its prefix"):
        session._settings(None, {"spark.ckpt.s3.pathStyle": True})
