from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt import paths
from spark_ckpt.conf.forms import parse_storage, parse_stream
from spark_ckpt.errors import ConfigError, FormatError
from spark_ckpt.model import CheckpointId


@pytest.mark.parametrize(
    ("storage", "location", "url"),
    [
        ("s3://bucket/ckpt", "file:/data/ckpt/orders", "s3://bucket/ckpt/data/ckpt/orders"),
        ("s3://bucket", "/data/orders/", "s3://bucket/data/orders"),
        (None, "file:/data/orders", "file:///data/orders/_ckpt"),
        (None, "s3a://bucket/orders", "s3://bucket/orders/_ckpt"),
        (None, "gs://bucket/orders", "gs://bucket/orders/_ckpt"),
        ("az://c/ckpt", "abfss://c@a.dfs.core.windows.net/orders", "az://c/ckpt/abfss/c@a.dfs.core.windows.net/orders"),
        ("file:///kept", "hdfs://name:9000/data/orders", "file:///kept/hdfs/name:9000/data/orders"),
        (None, "file:/a b/ü #1 100%25 ?x=[1]{2}", "file:///a b/ü #1 100%25 ?x=[1]{2}/_ckpt"),
        ("s3://bucket/ckpt", "file:/orders#1", "s3://bucket/ckpt/orders#1"),
        ("s3://bucket/ckpt", "file:/orders#2?x", "s3://bucket/ckpt/orders#2?x"),
        ("s3://bucket/ckpt", "file:///a//b:c/d", "s3://bucket/ckpt/a/b:c/d"),
    ],
)
def test_a_stream_lives_where_its_location_says_whatever_characters_are_in_it(storage: str | None, location: str, url: str) -> None:
    assert paths.stream_url(storage, location) == url


def test_a_streams_url_is_told_by_the_letters_of_its_location() -> None:
    """What is written so in the documents: a change would leave streams that exist behind."""
    assert paths.stream_url("s3://b/c", "file:/hdfs/nn/data") == paths.stream_url("s3://b/c", "hdfs://nn/data")
    assert len({paths.stream_url("s3://b/c", f"{scheme}://x/data") for scheme in ("s3", "s3a", "s3n")}) == 3
    assert len({paths.stream_url(None, f"{scheme}://x/data") for scheme in ("s3", "s3a", "s3n")}) == 1


def test_a_streams_url_may_have_what_a_storages_must_not() -> None:
    assert parse_stream("file:///data/orders#1?x/_ckpt") == "file:///data/orders#1?x/_ckpt"
    assert parse_stream("gs://bucket/ckpt/orders#1") == "gs://bucket/ckpt/orders#1"
    assert parse_stream("s3a://bucket/ckpt/orders#1") == "s3://bucket/ckpt/orders#1"
    with pytest.raises(ValueError, match=r"without \? and #"):
        parse_storage("s3://bucket/ckpt?region=x")
    with pytest.raises(ValueError, match="without credentials"):
        parse_stream("s3://key:secret@bucket/orders")


def test_a_savepoint_is_below_its_stream_or_its_target() -> None:
    assert paths.savepoint_url("s3://b/s", "", "x") == "s3://b/s/savepoints/x"
    assert paths.savepoint_url("s3://b/s", "file:///other/", "x-1") == "file:///other/x-1"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", ".hidden", "a b", "ü", "x" * 201])
def test_what_cannot_name_a_savepoint(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a savepoint"):
        paths.savepoint_url("s3://b/s", "", name)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://b/s/run-00000003/chk-42", ("s3://b/s", CheckpointId(3, 42))),
        ("file:///a/run-x/s/run-00000003/chk-0", ("file:///a/run-x/s", CheckpointId(3, 0))),
        ("s3://b/s/savepoints/x", None),
        ("s3://b/s/run-00000003/seg", None),
        ("run-00000003/chk-42", None),
    ],
)
def test_the_url_of_a_checkpoint_is_told_from_others(url: str, found: tuple[str, CheckpointId] | None) -> None:
    assert paths.parse_checkpoint_url(url) == found


def test_what_only_reads_like_a_run_or_a_checkpoint_is_none() -> None:
    assert paths.parse_run_prefix("run-00000001/") == paths.parse_run_prefix("run-00000001") == 1
    assert paths.parse_run_prefix("run-000000001/") is None
    assert paths.parse_checkpoint_prefix("run-00000001/chk-9") == CheckpointId(1, 9)
    assert paths.parse_checkpoint_prefix("run-00000001/chk-0009") is None
    assert paths.parse_checkpoint_prefix("run-000000001/chk-9") is None


def test_a_copied_object_is_told_from_another_choice_of_its_ranges() -> None:
    key = paths.segment_key(3, 7, "a")
    assert paths.copied_key(key, 1) == "run-00000003/seg/7-a.00000001"
    assert paths.copied_key(key, 2, run=12) == "run-00000012/seg/7-a.00000002"
    assert paths.check_object(paths.copied_key(key, 2**32 - 1)) == "run-00000003/seg/7-a.ffffffff"


def test_the_names_of_copies_of_copies_do_not_grow() -> None:
    first = paths.copied_key(paths.pack_key(3, "ab", 100), 1)
    again, other = paths.copied_key(first, 7, run=4), paths.copied_key(paths.copied_key(paths.pack_key(3, "ab", 100), 2), 7, run=4)
    assert len(again) == len(first)
    assert again != other
    assert again.startswith("run-00000004/sst/ab-100.pack.")
    assert paths.copied_key(first, 7, run=4) == again


@given(st.lists(st.text("aB0/.\\\0_-\n é", max_size=5), max_size=4))
def test_many_names_are_checked_like_one(names: list[str]) -> None:
    def passes(check: Callable[[], object]) -> bool:
        try:
            check()
        except FormatError:
            return False
        return True

    assert passes(lambda: paths.check_files(names)) == all(passes(lambda name=name: paths.check_file(name)) for name in names)  # type: ignore[misc]
