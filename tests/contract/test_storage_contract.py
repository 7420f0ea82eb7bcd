"""What every storage must do (spark_ckpt/storage/base.py), run over memory, file, S3 and the clouds."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_ckpt.errors import DamagedError, FormatError, ObjectMissingError, StorageError
from spark_ckpt.storage import PutResult, Slice, Storage
from spark_ckpt.storage.probe import check_put_if_absent

Open = Callable[[], Storage]
OpenBelow = Callable[[str], Storage]

MIB = 1 << 20
AWKWARD = ["a b", "a+b", "a%20b", "ä/ö", "x=1,y=2", "q?x#y", "<&>'\"", "日本", "a:b", "~t", "-dash", "..two", "dot.", "*", "back\\slash"]


def test_what_was_put_is_read_back(storage: Storage) -> None:
    storage.put("run-1/seg/a", b"hello")
    assert storage.get("run-1/seg/a") == b"hello"
    assert storage.size("run-1/seg/a") == 5


def test_an_empty_object_is_an_object(storage: Storage) -> None:
    storage.put("empty", b"")
    assert storage.get("empty") == b""
    assert storage.get("empty", 0, 0) == b""
    assert storage.size("empty") == 0
    with pytest.raises(DamagedError):
        storage.get("empty", 0, 1)


def test_a_put_replaces(storage: Storage) -> None:
    storage.put("k", b"long first value")
    storage.put("k", b"second")
    assert storage.get("k") == b"second"


def test_what_one_client_put_another_reads(open_again: Open) -> None:
    open_again().put("k", b"v")
    assert open_again().get("k") == b"v"


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (0, 10, b"0123456789"),
        (2, 3, b"234"),
        (9, 1, b"9"),
        (4, 0, b""),
        (10, 0, b""),
        (10, None, b""),
    ],
)
def test_ranges(storage: Storage, offset: int, length: int | None, expected: bytes) -> None:
    storage.put("k", b"0123456789")
    assert storage.get("k", offset, length) == expected


@pytest.mark.parametrize(("offset", "length"), [(0, 11), (5, 6), (10, 1), (11, None), (11, 0), (20, 5)])
def test_a_range_beyond_the_end_is_damage(storage: Storage, tmp_path: Path, offset: int, length: int | None) -> None:
    storage.put("k", b"0123456789")
    with pytest.raises(DamagedError, match="10 bytes"):
        storage.get("k", offset, length)
    if length is not None:
        with pytest.raises(DamagedError, match="10 bytes"):
            storage.get_to_file("k", offset, length, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_what_is_not_there_is_missing(storage: Storage, tmp_path: Path) -> None:
    storage.put("folder/k", b"v")
    for key in ("none", "folder", "folder/none", "folder/k/below"):
        assert storage.size(key) is None
        for length in (None, 0, 3):
            with pytest.raises(ObjectMissingError, match=key):
                storage.get(key, 0, length)
        with pytest.raises(ObjectMissingError, match=key):
            storage.get_to_file(key, 0, 5, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_read_of_what_is_larger_than_its_limit(storage: Storage) -> None:
    storage.put("k", b"0123456789")
    before = storage.bytes_in
    for offset, length, limit in ((0, None, 9), (0, 10, 9), (3, None, 6), (3, 5, 4)):
        with pytest.raises(FormatError, match=f"/k has .* bytes to read, more than the {limit}"):
            storage.get("k", offset, length, limit)
    assert storage.bytes_in == before
    assert storage.get("k", limit=10) == b"0123456789"
    assert storage.get("k", 3, limit=7) == b"3456789"
    assert storage.get("k", 3, 5, limit=5) == b"34567"


def test_it_says_when_it_stored_by_the_clock_that_listings_go_by(storage: Storage) -> None:
    result, stored_ms = storage.put_if_absent_dated("log/1", b"first")
    assert result is PutResult.STORED
    assert stored_ms is not None
    (listed,) = storage.list("log/")
    assert abs(listed.modified_ms - stored_ms) < 60_000, "half a day is what it is compared with"
    assert storage.put_if_absent_dated("log/1", b"first") == (PutResult.EXISTS, None)


def test_put_if_absent_keeps_the_first(storage: Storage) -> None:
    assert storage.put_if_absent("log/1", b"first") is PutResult.STORED
    assert storage.put_if_absent("log/1", b"second") is PutResult.EXISTS
    assert storage.put_if_absent("log/1", b"first") is PutResult.EXISTS
    assert storage.get("log/1") == b"first"
    storage.put("plain", b"here")
    assert storage.put_if_absent("plain", b"x") is PutResult.EXISTS


def test_a_deleted_key_is_absent(storage: Storage) -> None:
    storage.put_if_absent("log/1", b"first")
    storage.delete(["log/1"])
    assert storage.put_if_absent("log/1", b"second") is PutResult.STORED


def test_of_sixteen_writers_one_wins(open_again: Open) -> None:
    clients = [open_again() for _ in range(2)]
    with ThreadPoolExecutor(16) as pool:
        for number in range(6):
            gate = threading.Barrier(16)
            key = f"race-{number}/entry"

            def write(writer: int, gate: threading.Barrier = gate, key: str = key) -> PutResult:
                gate.wait()
                return clients[writer % 2].put_if_absent(key, f"writer {writer}".encode())

            results = list(pool.map(write, range(16)))
            winners = [writer for writer, result in enumerate(results) if result is PutResult.STORED]
            assert len(winners) == 1
            assert clients[0].get(key) == f"writer {winners[0]}".encode()


def test_a_reader_never_sees_half_an_object(open_again: Open) -> None:
    writer, reader = open_again(), open_again()
    value = b"x" * MIB
    done = threading.Event()

    def write() -> None:
        for number in range(8):
            writer.put_if_absent(f"whole/{number}", value)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    sizes: set[int] = set()
    while not done.is_set():
        sizes.update(stored.size for stored in reader.list("whole/"))
    thread.join()
    sizes.update(stored.size for stored in reader.list("whole/"))
    assert sizes == {MIB}


def test_listing_is_in_key_order(storage: Storage) -> None:
    seed = random.randrange(1 << 32)
    keys = [
        "a",
        "a-b",
        "a.b/c",
        "a0",
        "ab/c",
        "b/1",
        "b/10",
        "b/2",
        "b-1",
        "b/1-x",
        "run-1/chk-1/_metadata",
        "run-1/chk-10/_metadata",
        "ä",
        "z/ä",
        "z/日",
    ]
    shuffled = random.Random(seed).sample(keys, len(keys))
    for key in shuffled:
        storage.put(key, key.encode())
    found = list(storage.list(""))
    assert [stored.key for stored in found] == sorted(keys, key=str.encode), f"seed {seed}"
    assert [stored.size for stored in found] == [len(stored.key.encode()) for stored in found]
    assert min(stored.modified_ms for stored in found) > 1_600_000_000_000
    assert [stored.key for stored in storage.list("b/1")] == ["b/1", "b/1-x", "b/10"]
    assert [stored.key for stored in storage.list("b/")] == ["b/1", "b/1-x", "b/10", "b/2"]
    assert [stored.key for stored in storage.list("run-1/chk-")] == ["run-1/chk-1/_metadata", "run-1/chk-10/_metadata"]
    assert list(storage.list("none")) == []
    assert list(storage.list("b/none/")) == []


def test_listing_goes_over_pages_and_starts_after(storage: Storage) -> None:
    keys = [f"log/{number:020d}" for number in range(1, 24)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: storage.put(key, b"e"), [*keys, "aaa", "zzz"]))
    assert [stored.key for stored in storage.list("log/")] == keys
    assert [stored.key for stored in storage.list("log/", keys[9])] == keys[10:]
    assert [stored.key for stored in storage.list("log/", "log/00000000000000000009x")] == keys[9:]
    assert list(storage.list("log/", keys[-1])) == []
    assert [stored.key for stored in storage.list("log/", "aaaa")] == keys
    assert [stored.key for stored in storage.list("", "log0")] == ["zzz"]
    assert [stored.key for stored in storage.list("", keys[20])] == [*keys[21:], "zzz"]


def test_folders(storage: Storage) -> None:
    for key in ("run-1/seg/a", "run-1/seg/b", "run-1/chk-4/_metadata", "run-2/seg/c", "log/1", "top", "run-x"):
        storage.put(key, b"v")
    assert list(storage.list_folders("")) == ["log/", "run-1/", "run-2/"]
    assert list(storage.list_folders("run-")) == ["run-1/", "run-2/"]
    assert list(storage.list_folders("run-1/")) == ["run-1/chk-4/", "run-1/seg/"]
    assert list(storage.list_folders("run-1/chk-")) == ["run-1/chk-4/"]
    assert list(storage.list_folders("none/")) == []
    storage.delete(["run-2/seg/c"])
    assert list(storage.list_folders("run-")) == ["run-1/"]


def test_more_folders_than_a_page(storage: Storage) -> None:
    names = [f"run-{number:08d}/" for number in range(1, 18)]
    for name in names:
        storage.put(name + "seg/a", b"v")
    assert list(storage.list_folders("run-")) == names


def test_delete_of_some_none_and_missing(storage: Storage) -> None:
    for key in ("a/1", "a/2", "b/1", "c"):
        storage.put(key, b"v")
    storage.delete([])
    storage.delete(["a/1", "never", "b/1", "never/below"])
    assert [stored.key for stored in storage.list("")] == ["a/2", "c"]
    storage.delete(key for key in ["a/2"])
    storage.delete(["a/2"])
    assert [stored.key for stored in storage.list("")] == ["c"]


def test_a_folder_emptied_while_others_write_into_it(open_again: Open) -> None:
    writer, deleter = open_again(), open_again()
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            deleter.delete(["shared/deep/x"])
            deleter.put("shared/deep/x", b"x")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for number in range(40):
            assert writer.put_if_absent(f"shared/deep/{number}", b"v") is PutResult.STORED
            assert writer.get(f"shared/deep/{number}") == b"v"
            writer.delete([f"shared/deep/{number}"])
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_keys(storage: Storage, name: str) -> None:
    key = f"dir/{name}/leaf {name.replace('/', '-')}"
    if storage.url.startswith("az:") and "\\" in key:
        with pytest.raises(FormatError, match="another way to write /"):
            storage.put(key, b"v")
        return
    assert storage.put_if_absent(key, name.encode()) is PutResult.STORED
    assert storage.put_if_absent(key, b"again") is PutResult.EXISTS
    storage.put("dir/other", b"o")
    assert storage.get(key) == name.encode()
    assert {stored.key for stored in storage.list("dir/")} == {key, "dir/other"}
    assert [stored.key for stored in storage.list(f"dir/{name}/")] == [key]
    assert list(storage.list_folders("dir/")) == [f"dir/{name.split('/')[0]}/"]
    storage.delete([key, "dir/other"])
    assert list(storage.list("")) == []


def test_a_user_may_name_the_place_as_a_storage_names_its_temporary_files(open_below: OpenBelow) -> None:
    for root in (".tmp", "home/.tmp/orders", "a/.tmp"):
        storage = open_below(root)
        assert storage.put_if_absent("log/1", b"v") is PutResult.STORED
        assert storage.get("log/1") == b"v"
        assert [stored.key for stored in storage.list("")] == ["log/1"]
        assert list(storage.list_folders("")) == ["log/"]
        with pytest.raises(FormatError, match="plain relative path"):
            storage.put(".tmp/x", b"v")
        storage.delete(["log/1"])
        assert storage.size("log/1") is None


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../../b", "a/..", ".", "./a", "a/./b", "a\0b", "a\nb", ".tmp/x", "a/.tmp", "/etc/passwd"]
)
def test_keys_that_leave_the_root_are_refused(storage: Storage, tmp_path: Path, key: str) -> None:
    for call in (
        lambda: storage.put(key, b"v"),
        lambda: storage.put_if_absent(key, b"v"),
        lambda: storage.put_slices(key, []),
        lambda: storage.get(key),
        lambda: storage.get_to_file(key, 0, 1, tmp_path / "out"),
        lambda: storage.size(key),
        lambda: storage.delete(["fine", key]),
    ):
        with pytest.raises(FormatError):
            call()
    assert list(storage.list("")) == []


@pytest.mark.parametrize("prefix", ["/", "../", "a/../b", "a//b", "./"])
def test_prefixes_that_leave_the_root_are_refused(storage: Storage, prefix: str) -> None:
    with pytest.raises(FormatError):
        list(storage.list(prefix))
    with pytest.raises(FormatError):
        list(storage.list_folders(prefix))


def test_slices_are_laid_back_to_back(storage: Storage, tmp_path: Path) -> None:
    one, two, none = tmp_path / "one", tmp_path / "two", tmp_path / "none"
    one.write_bytes(b"0123456789")
    two.write_bytes(b"abcdef")
    none.write_bytes(b"")
    storage.put_slices("seg", [Slice(one, 2, 3), Slice(none, 0, 0), Slice(two, 0, 6), Slice(one, 10, 0), Slice(one, 0, 1)])
    assert storage.get("seg") == b"234abcdef0"
    storage.put_slices("nothing", [])
    storage.put_slices("nothing at all", [Slice(none, 0, 0)])
    assert storage.get("nothing") == storage.get("nothing at all") == b""


def test_slices_larger_than_one_put(storage: Storage, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    data = random.Random(seed).randbytes(17 * MIB + 12345)
    (tmp_path / "big").write_bytes(data)
    (tmp_path / "small").write_bytes(b"s" * 100)
    slices = [Slice(tmp_path / "small", 1, 99), Slice(tmp_path / "big", 0, 7 * MIB), Slice(tmp_path / "big", 7 * MIB, len(data) - 7 * MIB)]
    expected = b"s" * 99 + data
    storage.put_slices("big", slices)
    assert storage.size("big") == len(expected)
    assert zlib.crc32(storage.get("big")) == zlib.crc32(expected), f"seed {seed}"
    assert storage.get("big", 5 * MIB - 10, 20) == expected[5 * MIB - 10 : 5 * MIB + 10]
    crc = storage.get_to_file("big", 99, len(data), tmp_path / "out")
    assert crc == zlib.crc32(data)
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("length", [6 * MIB - 1, 6 * MIB, 6 * MIB + 1, 10 * MIB])
def test_slices_around_the_edge_of_one_put(storage: Storage, tmp_path: Path, length: int) -> None:
    data = random.Random(length).randbytes(length)
    (tmp_path / "f").write_bytes(data)
    storage.put_slices("edge", [Slice(tmp_path / "f", 0, length)])
    assert zlib.crc32(storage.get("edge")) == zlib.crc32(data)


def test_a_file_shorter_than_its_slice_stores_nothing(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    for bad in (Slice(tmp_path / "f", 5, 6), Slice(tmp_path / "f", 11, 0), Slice(tmp_path / "gone", 0, 1)):
        with pytest.raises(DamagedError, match=str(bad.path)):
            storage.put_slices("seg", [Slice(tmp_path / "f", 0, 10), bad])
    assert list(storage.list("")) == []


def test_download_to_a_file_gives_the_checksum(storage: Storage, tmp_path: Path) -> None:
    storage.put("k", b"0123456789")
    assert storage.get_to_file("k", 2, 5, tmp_path / "out") == zlib.crc32(b"23456")
    assert (tmp_path / "out").read_bytes() == b"23456"
    assert storage.get_to_file("k", 4, 0, tmp_path / "none") == 0
    assert (tmp_path / "none").read_bytes() == b""


def test_a_download_goes_into_a_file_that_is_there(storage: Storage, tmp_path: Path) -> None:
    storage.put("k", b"0123456789")
    out = tmp_path / "out"
    out.write_bytes(b"abcdefgh")
    assert storage.get_to_file("k", 2, 3, out, 4) == zlib.crc32(b"234")
    assert storage.get_to_file("k", 9, 1, out, 0) == zlib.crc32(b"9")
    assert out.read_bytes() == b"9bcd234h"
    with pytest.raises(DamagedError):
        storage.get_to_file("k", 8, 3, out, 1)
    assert out.exists(), "a file that others write to as well stays"
    with pytest.raises(StorageError, match="nobody"):
        storage.get_to_file("k", 0, 1, tmp_path / "nobody", 3)


def test_a_download_that_cannot_be_written_names_the_file(storage: Storage, tmp_path: Path) -> None:
    storage.put("k", b"0123456789")
    with pytest.raises(StorageError, match="no-folder/out"):
        storage.get_to_file("k", 0, 10, tmp_path / "no-folder" / "out")


def test_requests_and_bytes_are_counted(storage: Storage) -> None:
    storage.put("a", b"12345")
    storage.put_if_absent("b", b"123")
    storage.put_if_absent("b", b"123")
    storage.get("a")
    storage.get("a", 1, 2)
    storage.size("a")
    list(storage.list(""))
    list(storage.list_folders(""))
    storage.delete(["a", "b", "c"])
    scheme = storage.url.partition(":")[0]
    heads = 2 if scheme in ("gs", "az") else 1  # one more: an answer to a put has no date there
    deletes = {"gs": 6, "az": 4}.get(scheme, 1)  # one by one, or together and again one by one where something was missing
    assert dict(storage.requests) == {"put": 1, "put_if_absent": 2, "get": 2, "head": heads, "list": 2, "delete": deletes}
    assert storage.bytes_out == 11
    assert storage.bytes_in == 7


def test_the_probe_leaves_nothing(storage: Storage) -> None:
    check_put_if_absent(storage)
    assert list(storage.list("")) == []


def test_a_closed_storage_says_so(open_again: Open) -> None:
    with open_again() as storage:
        storage.put("k", b"v")
    storage.close()
    for call in (
        lambda: storage.put("k", b"v"),
        lambda: storage.put_if_absent("k", b"v"),
        lambda: storage.put_slices("k", []),
        lambda: storage.get("k"),
        lambda: storage.size("k"),
        lambda: list(storage.list("")),
        lambda: list(storage.list_folders("")),
        lambda: storage.delete(["k"]),
    ):
        with pytest.raises(StorageError, match="closed"):
            call()
    assert open_again().get("k") == b"v"
