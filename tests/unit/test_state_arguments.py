"""`read_state`: what people give it, of the wrong kind, wrongly named, or in another form than expected."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spark_ckpt
from spark_ckpt.cli.main import run
from spark_ckpt.errors import ConfigError, ObjectMissingError
from spark_ckpt.storage import open_storage
from tests.drivers.stored_stream import StreamWriter
from tests.stored.earlier import place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("streams")
    place("1", found / "stream")
    StreamWriter(open_storage(f"file://{found}/begun")).begin(1)
    (found / "empty").mkdir()
    (found / "file").write_text("x")
    return found


@pytest.mark.parametrize(("url", "arguments"), [
    ("file://{0}/stream", {}),
    ("file://{0}/stream/", {}),
    ("file:{0}//stream//", {}),
    (" {0}/stream ", {}),
    ("{0}/stream/run-00000002/chk-5/", {}),
    ("{0}/stream/run-00000002/chk-5/_metadata", {}),
    ("{0}/stream/savepoints/kept/", {}),
    ("{0}/stream/savepoints/kept/_metadata", {"checkpoint": "run-1/chk-4"}),
    ("{0}/stream", {"checkpoint": "run-00000001/chk-4"}),
    ("{0}/stream", {"operator": np.int64(0), "store": "default"}),
    ("{0}/stream", {"partitions": np.arange(2)}),
    ("{0}/stream", {"partitions": (number for number in (1, 0, 1))}),
    ("{0}/stream", {"conf": {"spark.ckpt.s3.region": None, "spark.ckpt.s3.pathStyle": True}}),
])
def test_forms_that_mean_the_same(folder: Path, url: str, arguments: dict[str, Any]) -> None:
    state = spark_ckpt.read_state(url.format(folder), **arguments)
    assert state.to_table().num_rows == state.to_table().num_rows == 5


def test_a_path_is_a_path(folder: Path) -> None:
    assert spark_ckpt.read_state(folder / "stream").to_table().num_rows == 5
    assert spark_ckpt.read_state(folder / "stream", partitions=[]).to_table().num_rows == 0


@pytest.mark.parametrize(("arguments", "said"), [
    ({"url": None}, "the stream's URL is None, and must be text"),
    ({"url": b"/x"}, "the stream's URL is b'/x', and must be text"),
    ({"url": ""}, "cannot be used; write s3://bucket/prefix"),
    ({"url": "tests/stored"}, r"cannot be used; write s3://bucket/prefix, .* file:///path or an absolute path"),
    ({"url": "hdfs://bucket/x"}, "cannot be used; write s3://bucket/prefix"),
    ({"url": "file:///x/../y"}, r"without \. and \.\. in it"),
    ({"url": "file:///x\0y"}, r"file:///x\\x00y is not an absolute path"),
    ({"url": "s3://key:secret/p"}, "cannot be used; write s3://bucket/prefix"),
    ({"operator": "0"}, "operator is '0', and must be a whole number"),
    ({"operator": True}, "operator is True, and must be a whole number"),
    ({"operator": 0.0}, "operator is 0.0, and must be a whole number"),
    ({"operator": -1}, "has no operator -1; choose one of 0"),
    ({"store": 1}, "store is 1, and must be text"),
    ({"store": ""}, "no store ''; choose one of default"),
    ({"partitions": 0}, "partitions is 0, and must be several whole numbers; write"),
    ({"partitions": "01"}, "partitions is '01', and must be several whole numbers"),
    ({"partitions": [None]}, "one of partitions is None"),
    ({"partitions": [-1]}, "no partition -1; they are 0 to 1"),
    ({"partitions": range(10**12)}, "partitions has more than 1000000 numbers"),
    ({"checkpoint": 5}, "checkpoint is 5, and must be text"),
    ({"checkpoint": "latest"}, "'latest' is not a checkpoint; write it as run-3/chk-42"),
    ({"checkpoint": "run-²/chk-4"}, "is not a checkpoint"),
    ({"checkpoint": "run-1/chk-" + "9" * 5000}, "is not a checkpoint"),
    ({"conf": ["spark.ckpt.s3.region"]}, "must be a dictionary of spark.ckpt.s3"),
    ({"conf": {"region": "x"}}, "conf has 'region', which is no option"),
    ({"conf": {"spark.ckpt.s3.secretKey": "secret"}}, "boto3's own chain"),
])
def test_what_is_wrong_is_named_with_the_way_out(folder: Path, arguments: Mapping[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as e:
        spark_ckpt.read_state(**{"url": f"{folder}/stream", **arguments})
    assert ": 'secret" not in str(e.value)
    assert "key:secret" not in str(e.value)
    assert len(str(e.value)) < 400


@pytest.mark.parametrize(("path", "checkpoint", "said"), [
    ("begun", None, "has no checkpoint to go on from; `spark-ckpt list` shows"),
    ("stream", "run-9/chk-4", "no checkpoint run-9/chk-4 at"),
    ("stream/savepoints/kept", "run-1/chk-3", "is run-1/chk-4 and not run-1/chk-3"),
    ("stream/savepoints", None, "there is no stream at .*it holds kept/"),
    ("stream/savepoints/gone", None, "there is no stream at"),
    ("stream/run-00000001", None, "there is no stream at"),
    ("stream/run-00000009/chk-9", None, "chk-9"),
    ("empty", None, "there is no stream at .*nothing is there"),
    ("file", None, "there is no stream at .*nothing is there"),
    ("missing", None, "there is no stream at .*nothing is there"),
])
def test_where_nothing_is(
    folder: Path, path: str, checkpoint: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ObjectMissingError, match=said):
        spark_ckpt.read_state(f"{folder}/{path}", checkpoint=checkpoint)
    for verb in (["state"], ["export", "--", f"{folder}/out"]):
        chosen = [] if checkpoint is None else ["--checkpoint", checkpoint]
        assert run([verb[0], *chosen, f"{folder}/{path}", *verb[2:]]) == 1
        assert f"{folder}/" in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize("verb", [["state", "{0}"], ["list", "{0}"], ["export", "{1}/stream", "{0}"], ["import", "{0}", "{1}"],
                                  ["export", "{1}/stream", "{1}/out", "--location", "{0}"], ["restore", "{0}"]])
@pytest.mark.parametrize("url", ["s3://key:secret/p", "s3a://key:secret", "s3:key:secret/p", "s3://key:secret@bucket/p", "gs://key:secret/p"])
def test_no_command_shows_a_password(verb: list[str], url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([one.format(url, folder) for one in verb]) == 2
    err = capsys.readouterr().err
    assert "secret" not in err
    assert "…" in err
    assert not (folder / "out").exists()
