"""Reading a store's full snapshot: real RocksDB files, damaged ones, forged ones."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.errors import DamagedError, FormatError, ObjectMissingError
from spark_ckpt.model import Checkpoint, HandleKind
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.state import CountResult, KeyCount, assemble, count_keys
from spark_ckpt.stored.state.archive import MAX_MEMBERS, MAX_UNPACKED, MAX_VALUES, parse_metadata, read_full_snapshot, unpack
from tests.drivers.stored_stream import SmallStore, StreamWriter, make_store


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(f"file://{tmp_path}/stream")


def stored(storage: Storage, *stores: SmallStore, changelogs_only: int = 0) -> Checkpoint:
    writer = StreamWriter(storage)
    writer.begin(1)
    return writer.complete(1, 0, list(stores), changelogs_only)


def counted(storage: Storage, checkpoint: Checkpoint, folder: Path) -> KeyCount:
    store = assemble(storage, checkpoint, checkpoint.snapshots[0], folder)
    assert store is not None
    return count_keys(store)


def test_keys_are_counted(storage: Storage, tmp_path: Path) -> None:
    count = counted(storage, stored(storage, make_store(tmp_path, 250)), tmp_path / "a")
    assert (count.entries, count.recorded, count.result) == (250, 250, CountResult.EQUAL)


def test_sparks_internal_keys_are_entries_too(storage: Storage, tmp_path: Path) -> None:
    count = counted(storage, stored(storage, make_store(tmp_path, 140, internal=80)), tmp_path / "a")
    assert (count.entries, count.recorded, count.result) == (140, 140, CountResult.EQUAL)


def test_a_wrong_number_is_told(storage: Storage, tmp_path: Path) -> None:
    count = counted(storage, stored(storage, make_store(tmp_path, 250, recorded=251)), tmp_path / "a")
    assert count.result is CountResult.DIFFERENT


def test_without_a_recorded_number_it_is_read_through(storage: Storage, tmp_path: Path) -> None:
    count = counted(storage, stored(storage, make_store(tmp_path, 50, recorded=-1)), tmp_path / "a")
    assert (count.entries, count.recorded, count.result) == (50, None, CountResult.NOT_RECORDED)


def test_a_store_of_changelogs_has_nothing_to_open(storage: Storage, tmp_path: Path) -> None:
    checkpoint = stored(storage, changelogs_only=1)
    assert assemble(storage, checkpoint, checkpoint.snapshots[0], tmp_path / "a") is None
    assert not (tmp_path / "a").exists()


def test_a_missing_sst_object_is_named(storage: Storage, tmp_path: Path) -> None:
    checkpoint = stored(storage, make_store(tmp_path, 20))
    sst = checkpoint.snapshots[0].handles[0].object
    storage.delete([sst])
    with pytest.raises(ObjectMissingError, match="chk-0: operator 0, partition 0, store default") as e:
        assemble(storage, checkpoint, checkpoint.snapshots[0], tmp_path / "a")
    assert sst in str(e.value)


def test_a_flipped_byte_is_found(storage: Storage, tmp_path: Path) -> None:
    checkpoint = stored(storage, make_store(tmp_path, 20))
    sst = checkpoint.snapshots[0].handles[0].object
    data = bytearray(storage.get(sst))
    data[40] ^= 1
    storage.put(sst, bytes(data))
    with pytest.raises(DamagedError, match="CRC-32"):
        assemble(storage, checkpoint, checkpoint.snapshots[0], tmp_path / "a")


def test_damage_that_was_stored_with_a_right_checksum_is_found_by_rocksdb(storage: Storage, tmp_path: Path) -> None:
    store = make_store(tmp_path, 300)
    damaged = {}
    for name, data in store.ssts.items():
        block = bytearray(data)
        block[40] ^= 255
        damaged[name] = bytes(block)
    checkpoint = stored(storage, SmallStore(store.zip_bytes, damaged))
    with pytest.raises(DamagedError, match=r"RocksDB cannot read 7_u\.zip"):
        counted(storage, checkpoint, tmp_path / "a")


def test_an_sst_that_the_checkpoint_does_not_hold(storage: Storage, tmp_path: Path) -> None:
    checkpoint = stored(storage, make_store(tmp_path, 20))
    snapshot = checkpoint.snapshots[0]
    without = replace(snapshot, handles=tuple(h for h in snapshot.handles if h.kind is not HandleKind.SST))
    with pytest.raises(DamagedError, match="which the checkpoint does not hold"):
        assemble(storage, checkpoint, without, tmp_path / "a")


def test_the_folder_must_be_empty(storage: Storage, tmp_path: Path) -> None:
    checkpoint = stored(storage, make_store(tmp_path, 5))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "CURRENT").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        assemble(storage, checkpoint, checkpoint.snapshots[0], tmp_path / "a")


def zipped(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members:
            file.writestr(name, data)
    return path


GOOD = ("metadata", b'v1\n{"sstFiles":[],"numKeys":0,"numInternalKeys":0}')


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/b", "..", ".hidden", "a\\b", "SSTs/x.sst", "dir/", "x\n", "ü"])
def test_a_member_with_a_path_in_its_name_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(FormatError):
        unpack(zipped(tmp_path / "z.zip", [GOOD, (name, b"x")]), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="hides another"):
        unpack(zipped(tmp_path / "z.zip", [GOOD, ("CURRENT", b"a"), ("CURRENT", b"b")]), tmp_path)


def claiming(path: Path, size: int, claimed: int) -> Path:
    """A zip with a member of `size` bytes that says it has other ones."""
    data = bytearray(zipped(path, [GOOD, ("CURRENT", b"\0" * size)]).read_bytes())
    real = size.to_bytes(4, "little")
    while (at := data.find(real)) >= 0:
        data[at : at + 4] = claimed.to_bytes(4, "little")
    path.write_bytes(data)
    return path


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(FormatError, match="more than any snapshot"):
        unpack(claiming(tmp_path / "z.zip", 2 << 20, MAX_UNPACKED), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_bomb_that_lies_about_its_size_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(FormatError):
        unpack(claiming(tmp_path / "z.zip", 8 << 20, 16), tmp_path / "out")
    assert sum(p.stat().st_size for p in (tmp_path / "out").iterdir()) <= 16


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    members = [GOOD, *((f"m{number}", b"") for number in range(MAX_MEMBERS))]
    with pytest.raises(FormatError, match=f"{MAX_MEMBERS + 1} members"):
        unpack(zipped(tmp_path / "z.zip", members), tmp_path)


def test_a_compression_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped(tmp_path / "z.zip", [GOOD]).read_bytes())
    for header, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(header) + at] = 99
    (tmp_path / "z.zip").write_bytes(data)
    with pytest.raises(FormatError, match="That compression method is not supported"):
        unpack(tmp_path / "z.zip", tmp_path)


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip at all", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_zip(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "z.zip").write_bytes(data)
    with pytest.raises(FormatError, match=r"z\.zip"):
        unpack(tmp_path / "z.zip", tmp_path)


@pytest.mark.parametrize("offset", [1, 1000, 0x7FFFFFFF])
def test_a_zip_whose_members_would_begin_before_it(offset: int, tmp_path: Path) -> None:
    """That is no trouble with the disk, though the system calls it an invalid argument."""
    data = bytearray(zipped(tmp_path / "z.zip", [GOOD, ("CURRENT", b"a")]).read_bytes())
    data[-6:-2] = (int.from_bytes(data[-6:-2], "little") + offset).to_bytes(4, "little")
    (tmp_path / "z.zip").write_bytes(data)
    with pytest.raises(FormatError, match=r"z\.zip"):
        unpack(tmp_path / "z.zip", tmp_path)
    with pytest.raises(FormatError, match=r"z\.zip"):
        read_full_snapshot(tmp_path / "z.zip")


def test_truncated_zips(tmp_path: Path) -> None:
    whole = make_store(tmp_path, 10).zip_bytes
    for length in range(0, len(whole), 97):
        (tmp_path / "z.zip").write_bytes(whole[:length])
        folder = tmp_path / f"out{length}"
        folder.mkdir()
        with pytest.raises(FormatError):
            unpack(tmp_path / "z.zip", folder)


def test_a_damaged_member_is_found(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        file.writestr(*GOOD)
        file.writestr("CURRENT", b"MANIFEST-000005\n")
    (tmp_path / "z.zip").write_bytes(buffer.getvalue().replace(b"MANIFEST-000005\n", b"MANIFEST-000006\n", 1))
    (tmp_path / "out").mkdir()
    with pytest.raises(FormatError, match="CRC"):
        unpack(tmp_path / "z.zip", tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"sstFiles": [{"localFileName": "../x.sst", "dfsSstFileName": "a.sst", "sizeBytes": 1}]},
        {"sstFiles": [{"localFileName": "x.sst", "dfsSstFileName": "../a.sst", "sizeBytes": 1}]},
        {"sstFiles": [{"localFileName": "CURRENT", "dfsSstFileName": "a.sst", "sizeBytes": 1}]},
        {"sstFiles": [{"localFileName": "x.sst", "dfsSstFileName": "a.sst"}]},
        {"sstFiles": [{"localFileName": "x.sst", "dfsSstFileName": n, "sizeBytes": 1} for n in ("a.sst", "b.sst")]},
        {"sstFiles": 5},
        {"numKeys": "many"},
        {"numKeys": float("inf")},
        {"numInternalKeys": float("-inf")},
        {"sstFiles": [{"localFileName": "x.sst", "dfsSstFileName": "a.sst", "sizeBytes": float("inf")}]},
        {"other": [[]] * MAX_VALUES},
        {"logFiles": ["000001.log"]},
    ],
)
def test_forged_metadata_is_refused(changes: dict[str, Any]) -> None:
    document = {"sstFiles": [], "numKeys": 1, "numInternalKeys": 0, **changes}
    with pytest.raises(FormatError, match="7_u"):
        parse_metadata(b"v1\n" + json.dumps(document).encode(), "7_u.zip")


@pytest.mark.parametrize("text", [b"", b"v1", b"v1\n", b"v1\n[]", b"v1\nnull", b"v2\n{}", b"\xff\xff\n{}", b"v1\n" + b"[" * 100_000])
def test_unreadable_metadata_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError, match="7_u"):
        parse_metadata(text, "7_u.zip")


def test_the_form_that_spark_writes() -> None:
    text = (
        b'v1\n{"sstFiles":[{"localFileName":"000015.sst","dfsSstFileName":"000015-95541232-c1fb-4d18-94f9-c709f8fc6fc6.sst","sizeBytes":1560}],'
        b'"numKeys":60,"numInternalKeys":80,"columnFamilyMapping":{"m":6,"$procTimers_timestampToKey":8,"default":1},'
        b'"columnFamilyTypeMap":{"m":false,"$procTimers_timestampToKey":true,"default":false},"maxColumnFamilyId":8}'
    )
    full = parse_metadata(text, "7_u.zip")
    assert full.num_entries == 140
    assert full.ssts[0].local_name == "000015.sst"
