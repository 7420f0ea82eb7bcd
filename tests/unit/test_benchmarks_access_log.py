from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.access_log import Kind, between, by_kind, bytes_put, of_stream, parse

TAIL = "- Boto3/1.44.5 md/Botocore#1.44.5 - dFRc= SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn:aws:s3:::/bench Yes"


def line(
    operation: str,
    key: str = "a/b",
    status: int = 200,
    error: str = "-",
    sent: int = 0,
    size: int = 0,
    bucket: str = "bench",
    query: str = "",
) -> str:
    uri = f"/{bucket}{'' if key == '-' else f'/{key}'}{query and f'?{query}'}"
    head = f"test {bucket} [21/November/2026:14:52:34 +0000] 127.0.0.1 test 3K5KLWUHHDZPG8S1 s3_{operation} {key} {uri}"
    return f"{head} {status} {error} {sent} {size} 0 0 {TAIL}"


def test_requests_of_versitygw_are_told_by_kind() -> None:
    lines = [
        "log starts 2026-11-21 14:52:31.914181761 +0000 UTC m=+0.021684211",
        line("PutObject", size=100_000),
        line("PutObject", status=412, error="PreconditionFailed", size=7),
        line("GetObject"),
        line("HeadObject", status=404, error="NoSuchKey"),
        line("ListObjectsV2", key="-", sent=506),
        line("CreateMultipartUpload"),
        line("UploadPart"),
        line("CompleteMultipartUpload"),
        line("DeleteObjects", key="-"),
        line("GetBucketAcl", key="-"),
    ]
    requests = list(parse(lines))
    assert by_kind(requests) == {Kind.PUT: 5, Kind.GET: 1, Kind.HEAD: 1, Kind.LIST: 1, Kind.DELETE: 1, Kind.OTHER: 1}
    assert bytes_put(requests) == {"a/b": 100_000}, "a refused put stores nothing"
    assert (requests[0].key, requests[1].status) == ("a/b", 412)


def test_a_log_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not a line of versitygw's access log: .*version 1\.8"):
        list(parse(['test bench 127.0.0.1 s3_PutObject "PUT /bench/a HTTP/1.1" 200']))


def test_a_line_belongs_to_where_it_ends(tmp_path: Path) -> None:
    lines = [line("PutObject", key=f"k/{n}") for n in range(4)]
    log = tmp_path / "access.log"
    log.write_text("".join(f"{text}\n" for text in lines))
    ends = [sum(len(text) + 1 for text in lines[: n + 1]) for n in range(4)]
    assert [r.key for r in between(log, 0, ends[1])] == ["k/0", "k/1"]
    assert [r.key for r in between(log, ends[1], ends[3])] == ["k/2", "k/3"]
    middle = ends[1] + 20  # the length was taken while line 2 was being written
    assert [r.key for r in between(log, 0, middle)] == ["k/0", "k/1"]
    assert [r.key for r in between(log, middle, ends[3])] == ["k/2", "k/3"]


def test_of_a_long_log_the_middle_is_read(tmp_path: Path) -> None:
    lines = [line("PutObject", key=f"k/{n:04d}") for n in range(3000)]
    log = tmp_path / "access.log"
    log.write_text("".join(f"{text}\n" for text in lines))
    each = len(lines[0]) + 1
    assert 1500 * each > 1 << 17
    for more in (0, 20):
        assert [r.key for r in between(log, 1500 * each + more, 1503 * each + more)] == ["k/1500", "k/1501", "k/1502"]


def test_a_stream_has_its_own_requests_and_nobody_elses() -> None:
    own = [
        line("PutObject", key="ckpt/rows-7/log/1"),
        line("HeadObject", key="ckpt/rows-7", status=404, error="NoSuchKey"),
        line("ListObjectsV2", key="-", query="list-type=2&max-keys=2&prefix=ckpt%2Frows-7%2Fstate%2F0%2F&delimiter=%2F"),
        line("DeleteObjects", key="-", query="delete"),
    ]
    others = [
        line("PutObject", key="ckpt/rows-7/log/1", bucket="other"),
        line("DeleteObjects", key="-", query="delete", bucket="other"),
        line("ListObjectsV2", key="-", query="list-type=2&prefix=ckpt%2Frows-7%2Fstate", bucket="other"),
        line("PutObject", key="ckpt/rows-71/log/1"),
        line("DeleteObject", key="ckpt/rows-6/run-00000001/seg/3-a"),
        line("ListObjectsV2", key="-", query="list-type=2&prefix=ckpt%2Frows-6%2F"),
        line("ListObjectsV2", key="-", query="list-type=2&prefix="),
        line("HeadBucket", key="-"),
    ]
    mixed = [text for pair in zip(others, own, strict=False) for text in pair] + others[len(own) :]
    assert of_stream(parse(mixed), "bench", "rows-7") == list(parse(own))
