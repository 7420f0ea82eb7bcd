"""What lies in a storage may have been written by somebody else: nothing of it leaves the folders that it is for."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from spark_ckpt.errors import FormatError
from spark_ckpt.stored.state.archive import read_full_snapshot
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

SST = {"localFileName": "000009.sst", "dfsSstFileName": "000009-u.sst", "sizeBytes": 5}


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm() as started:
        yield started


class Store:
    """A state store's folder in the spool, with one full snapshot, as fetched; Spark's file manager over it."""

    def __init__(self, java: Any, folder: Path) -> None:
        self._java = java
        self.spool, self.local = folder / "spool" / "store", folder / "local" / "checkpoint"
        (self.spool / "SSTs").mkdir(parents=True)
        self.local.mkdir(parents=True)
        (self.spool / "SSTs" / "000009-u.sst").write_bytes(b"12345")

    def put(self, metadata: str | bytes, members: Mapping[str, bytes] | None = None, times: int = 1) -> None:
        with zipfile.ZipFile(self.spool / "7_u.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for _ in range(times):
                archive.writestr("metadata", metadata)
            for name, content in (members or {"CURRENT": b"MANIFEST-000005\n"}).items():
                archive.writestr(name, content)

    def load(self) -> None:
        java = self._java
        state = java.org.apache.spark.sql.execution.streaming.state
        conf = java.org.apache.hadoop.conf.Configuration()
        temp = java.java.io.File(str(self.local.parent / "temp"))
        of = state.StateStoreConf()
        files = state.ckpt.SpoolFiles(self.spool.as_uri(), state.ckpt.FileParts(temp, conf, "zstd", "here", of))
        try:
            local = java.java.io.File(str(self.local))
            files.loadCheckpointFromDfs(7, local, state.RocksDBFileMapping(), java.scala.Some("u"))
        finally:
            files.close()

    def refused(self) -> str:
        with pytest.raises(Py4JJavaError) as raised:
            self.load()
        text = str(raised.value.java_exception.toString())
        assert "CheckpointFailure[DAMAGED]" in text
        assert list(self.local.iterdir()) == []
        return text


@pytest.fixture
def store(java: Any, tmp_path: Path) -> Store:
    return Store(java, tmp_path)


def metadata(**changes: Any) -> str:
    return "v1\n" + json.dumps({"sstFiles": [SST], "numKeys": 1, **changes})


def test_a_snapshot_is_unpacked(store: Store) -> None:
    store.put(metadata())
    store.load()
    assert sorted(p.name for p in store.local.iterdir()) == ["000009.sst", "CURRENT"]


@pytest.mark.parametrize(
    "sst",
    [
        {"localFileName": "../../outside"},
        {"localFileName": "a/b.sst"},
        {"localFileName": ".."},
        {"dfsSstFileName": "../../../other.sst"},
        {"dfsSstFileName": "file:/etc/passwd"},
    ],
)
def test_a_snapshot_names_no_file_elsewhere(store: Store, tmp_path: Path, sst: Mapping[str, str]) -> None:
    (tmp_path / "other.sst").write_bytes(b"12345")
    store.put(metadata(sstFiles=[{**SST, **sst}]))
    assert "7_u.zip" in store.refused()
    assert not (tmp_path / "outside").exists()


def test_a_snapshot_names_no_log_elsewhere(store: Store) -> None:
    store.put(metadata(logFiles=[{"localFileName": "../../x.log", "dfsLogFileName": "x.log", "sizeBytes": 1}]))
    store.refused()


def test_a_name_that_is_there_twice_is_not_read_in_two_ways(store: Store) -> None:
    store.put(
        'v1\n{"sstFiles":[{"localFileName":"../../x","localFileName":"000009.sst","dfsSstFileName":"000009-u.sst","sizeBytes":5}],"numKeys":1}'
    )
    store.refused()


def test_a_line_ends_for_spark_where_it_ends_here(store: Store) -> None:
    forged = json.dumps({**SST, "localFileName": "../../x"})
    store.put('v1\r{"sstFiles":[' + forged + '],"numKeys":1,"z":\n{"sstFiles":[]}}')
    store.refused()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_hides_no_other_one(store: Store) -> None:
    store.put(metadata(), times=2)
    store.refused()


@pytest.mark.parametrize("name", ["../CURRENT", "/tmp/CURRENT", "a/b", "..", "a/", ".hidden"])
def test_a_members_name_is_plain(store: Store, name: str) -> None:
    store.put(metadata(), {name: b"MANIFEST-000005\n"})
    store.refused()


def test_a_bomb_is_not_unpacked(store: Store) -> None:
    store.put(metadata(), {"MANIFEST-000005": bytes((1 << 30) + 1)})
    assert "more than" in store.refused()


def test_a_snapshot_cut_short_is_refused(store: Store) -> None:
    store.put(metadata())
    whole = (store.spool / "7_u.zip").read_bytes()
    (store.spool / "7_u.zip").write_bytes(whole[:60])
    store.refused()


@pytest.mark.parametrize("name", ["file:{0}/cron", "../../cron", "sources", "elsewhere/0", "offsets/../../../cron"])
def test_a_driver_file_is_of_its_stream(java: Any, tmp_path: Path, name: str) -> None:
    root, name = tmp_path / "a" / "ckpt", name.format(tmp_path)
    conf = java.org.apache.hadoop.conf.Configuration()
    folder = java.org.apache.spark.sql.ckpt.CheckpointFolder(root.as_uri(), conf)
    nothing = getattr(java.scala.Predef, "$conforms")()
    wanted = java.scala.jdk.javaapi.CollectionConverters.asScala({"offsets/0": b"v1", name: b"* * * * * root true"}).toMap(nothing)
    with pytest.raises(Py4JJavaError) as raised:
        folder.replace(wanted, java.scala.Option.empty())
    assert "CheckpointFailure[DAMAGED]" in str(raised.value.java_exception.toString())
    assert not (tmp_path / "cron").exists()


def test_a_small_zip_with_a_large_tree_of_nothing_is_read_as_it_comes(java: Any, store: Store) -> None:
    """A tree of it would take more than the JVM has: a node for each two bytes."""
    store.put("v1\n" + '{"sstFiles": [], "x": [' + ",".join(["[]"] * 5_000_000) + "]}")
    runtime = java.java.lang.Runtime.getRuntime()
    runtime.gc()
    before = runtime.totalMemory() - runtime.freeMemory()
    with pytest.raises(Py4JJavaError) as raised:
        store.load()
    assert "OutOfMemoryError" not in str(raised.value)
    assert runtime.totalMemory() - runtime.freeMemory() - before < 500 << 20


@pytest.mark.parametrize(("ssts", "says"), [(100_000, ""), (100_001, "SSTs")])
def test_a_snapshot_names_a_bounded_number_of_files_for_the_jvm_and_for_python(java: Any, store: Store, ssts: int, says: str) -> None:
    names = [{"localFileName": f"{n}.sst", "dfsSstFileName": f"{n}-u.sst", "sizeBytes": 5} for n in range(ssts)]
    store.put(metadata(sstFiles=names))
    zipped = store.spool / "7_u.zip"
    found = []
    for look in (
        lambda: java.org.apache.spark.sql.execution.streaming.state.ckpt.SnapshotZip.check(java.java.io.File(str(zipped))),
        lambda: read_full_snapshot(zipped),
    ):
        try:
            look()
        except Py4JJavaError as error:
            found.append(str(error.java_exception.toString()))
        except FormatError as error:
            found.append(str(error))
        else:
            found.append("")
    assert [says in said and bool(says) == bool(said) for said in found] == [True, True], found


@pytest.mark.parametrize("encoding", ["utf-16-le", "iso-8859-1"])
def test_a_snapshots_metadata_is_utf_8(store: Store, encoding: str) -> None:
    store.put(b"v1\n" + json.dumps({"sstFiles": [SST], "numKeys": 1, "x": "\xe9"}, ensure_ascii=False).encode(encoding))
    store.refused()
    with pytest.raises(FormatError, match="cannot be read"):
        read_full_snapshot(store.spool / "7_u.zip")
