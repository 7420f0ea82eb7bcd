"""What the agent reads in the engine's files: the lineage of a changelog, the names in a full snapshot."""

from __future__ import annotations

import base64
import json
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.agent.changelog import parse_name, read_lineage, unpack_lz4
from spark_ckpt.errors import FormatError
from spark_ckpt.stored.state.archive import MAX_METADATA, read_full_snapshot
from tests.drivers.agent_stores import FakeStore

FROM_SPARK = base64.b64decode(
    "TFo0QmxvY2slwAIAANMIAABytBsN90IAAnYzAJVbeyJ2ZXJzaW9uIjoxLCJjaGVja3BvaW50VW5pcXVlSWQiOiJiMzk1Y2VmZi1jYTY3LTRlYjctODJmYS1i"
    "MTM1OWVhNzdkNzUifSxKAB8ySgAE9B1mMTQxOGU0YS1jN2UwLTRmNWEtYWFkYi04ODhlMzU4YzkzYzkifV0AAAARAAEAFAMJAAgVABACDwACAgAGKgASBBEA"
    "AAIABhUADyoAAhAFJAACAgAPKgAMEgYmAAACAA8qAAwQByQAAgIADyoADBIIJgAAAgAPKgAMEAkkAAICAA8qAAwSCiYAAAIADyoADBALJAACAgAPKgAMEgwm"
    "AAACAA8qAAwQDSQAAgIADyoADBIOJgAAAgAPKgAMEA8kAAICAA8qAAwSECYAAAIADyoADAYfAAdhAg8iAgIQEk4AAgIABjUADyoAAhITJgAAAgAPKgAMEBQk"
    "AAICAA8qAAwSFSYAAAIADyoADBAWJAACAgAPKgAMEhcmAAACAA8qAAwQGCQAAgIADyoADBIZJgAAAgAPKgAMEBokAAICAA8qAAwSGyYAAAIADyoADBAcJAAC"
    "AgAPKgAMEh0mAAACAA8qAAwQHiQAAgIADyoADBIfJgAAAgAPKgAMECAkAAICAA8qAAwSISYAAAIADyoADBAiJAACAgAPKgAMEiMmAAACAA8qAAwQJCQAAgIA"
    "DyoADBIlJgAAAgAPKgAMECYkAAICAA8qAAwSJyYAAAIADyoADBAoJAACAgAPKgAMEikmAAACAA8qAAwQKiQAAgIADyoADBIrJgAAAgAPKgAMECwkAAICAA8q"
    "AAwSLSYAAAIADyoADBAuJAACAgAPKgAMEi8mAAACAA8qAAwQMCQAAgIADyoADBIxJgAAAgAPKgAMEDIkAAICAA8qAAwSMyYAAAIADyoADBA0JAACAgANKgBQ"
    "AP////9MWjRCbG9jaxUAAAAAAAAAAAAAAAA="
)
"""Version 3 of a count by key, as Spark 4.3.0 wrote it."""


def test_a_changelog_of_sparks_own(tmp_path: Path) -> None:
    path = tmp_path / "3.changelog"
    path.write_bytes(FROM_SPARK)
    lineage = read_lineage(path)
    assert lineage is not None
    assert sorted(lineage) == [1, 2]
    assert lineage[2] == "f1418e4a-c7e0-4f5a-aadb-888e358c93c9"


@pytest.mark.parametrize("cut", [0, 5, 20, 60])
def test_a_cut_changelog_tells_nothing(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "3.changelog"
    path.write_bytes(FROM_SPARK[:cut])
    assert read_lineage(path) is None


def test_another_codec_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "3.changelog"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 100)
    assert read_lineage(path) is None
    assert read_lineage(tmp_path / "none") is None


def test_names() -> None:
    assert parse_name("7_ab-c.changelog") == (7, "ab-c", "changelog")
    assert parse_name("7_ab-c.zip") == (7, "ab-c", "zip")
    assert parse_name(".7_ab.zip.crc") is None
    assert parse_name("7.zip") is None


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 400)), max_size=20).map(lambda xs: b"".join(b * n for b, n in xs)))
def test_lz4_blocks_of_the_real_compressor(data: bytes) -> None:
    block = pa.Codec("lz4_raw").compress(data, asbytes=True)
    assert unpack_lz4(block, len(data) + 1) == data
    if data:
        assert (unpack_lz4(block, 1 + len(data) // 2) or b"")[: 1 + len(data) // 2] == data[: 1 + len(data) // 2]


@given(st.binary(max_size=300))
def test_damaged_lz4_blocks_end_without_an_error(block: bytes) -> None:
    out = unpack_lz4(block, 1000)
    assert out is None or len(out) <= 3000


def test_a_full_snapshot_names_its_ssts(tmp_path: Path) -> None:
    store = FakeStore(tmp_path)
    store.commit()
    store.snapshot(1, (10, 20))
    full = read_full_snapshot(tmp_path / f"1_{store.uid}.zip")
    assert {sst.stored_name: sst.size for sst in full.ssts} == store.ssts
    assert full.num_keys == 97


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v2\n{}", "has the format"),
        ("v1\n[]", "cannot be read"),
        ("v1\n{", "cannot be read"),
        ("v1\n" + json.dumps({"sstFiles": [{"dfsSstFileName": "../x.sst", "sizeBytes": 1}]}), "would leave its folder"),
        ("v1\n" + json.dumps({"sstFiles": [{"dfsSstFileName": "x.sst"}]}), "cannot be read"),
        ("v1\n" + json.dumps({"logFiles": [{"dfsLogFileName": "x.log"}]}), "write-ahead log"),
    ],
)
def test_what_is_no_snapshot_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with zipfile.ZipFile(tmp_path / "1_a.zip", "w") as archive:
        archive.writestr("metadata", text)
    with pytest.raises(FormatError, match=words):
        read_full_snapshot(tmp_path / "1_a.zip")


def test_an_archive_without_metadata_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "1_a.zip", "w") as archive:
        archive.writestr("CURRENT", "x")
    with pytest.raises(FormatError, match="not a complete snapshot"):
        read_full_snapshot(tmp_path / "1_a.zip")


def test_an_oversized_document_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "1_a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", b"v1\n" + b" " * MAX_METADATA)
    with pytest.raises(FormatError, match="more than any store can have"):
        read_full_snapshot(tmp_path / "1_a.zip")


def test_names_are_never_unpacked(tmp_path: Path) -> None:
    store = FakeStore(tmp_path / "s")
    store.commit()
    store.snapshot(1)
    path = store.folder / f"1_{store.uid}.zip"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../evil", os.urandom(5))
    read_full_snapshot(path)
    assert not list(tmp_path.rglob("evil"))
