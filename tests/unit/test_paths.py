from __future__ import annotations

import pytest

from spark_ckpt import paths
from spark_ckpt.conf import parse_storage, parse_stream


@pytest.mark.parametrize(
    ("storage", "location", "url"),
    [
        ("s3://bucket/ckpt", "file:/data/ckpt/orders", "s3://bucket/ckpt/data/ckpt/orders"),
        ("s3://bucket", "/data/orders/", "s3://bucket/data/orders"),
        (None, "file:/data/orders", "file:///data/orders/_ckpt"),
        (None, "s3a://bucket/orders", "s3://bucket/orders/_ckpt"),
        ("file:///kept", "hdfs://name:9000/data/orders", "file:///kept/hdfs/name:9000/data/orders"),
        (None, "file:/a b/ü #1 100%25 ?x=[1]{2}", "file:///a b/ü #1 100%25 ?x=[1]{2}/_ckpt"),
        ("s3://bucket/ckpt", "file:/orders#1", "s3://bucket/ckpt/orders#1"),
        ("s3://bucket/ckpt", "file:/orders#2?x", "s3://bucket/ckpt/orders#2?x"),
        ("s3://bucket/ckpt", "file:///a//b:c/d", "s3://bucket/ckpt/a/b:c/d"),
    ],
)
def test_a_stream_lives_where_its_location_says_whatever_characters_are_in_it(storage: str | None, location: str, url: str) -> None:
    assert paths.stream_url(storage, location) == url


def test_a_streams_url_may_have_what_a_storages_must_not() -> None:
    assert parse_stream("file:///data/orders#1?x/_ckpt") == "file:///data/orders#1?x/_ckpt"
    assert parse_stream("s3a://bucket/ckpt/orders#1") == "s3://bucket/ckpt/orders#1"
    with pytest.raises(ValueError, match=r"without \? and #"):
        parse_storage("s3://bucket/ckpt?region=x")
    with pytest.raises(ValueError, match="without credentials"):
        parse_stream("s3://key:secret@bucket/orders")
