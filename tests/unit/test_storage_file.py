"""What only files have: leftovers, synced folders, a full or read-only disk, names."""

from __future__ import annotations

import errno
import itertools
import os
import re
import resource
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from spark_ckpt.errors import ConfigError, DamagedError, ObjectMissingError, OutcomeUnknownError, StorageError, StorageSetupError
from spark_ckpt.storage import PutResult, Slice, open_storage
from spark_ckpt.storage.checksums import CHUNK
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.storage.probe import check_put_if_absent


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def storage(root: Path) -> FileStorage:
    return FileStorage(f"file://{root}")


def test_urls() -> None:
    for url in ("file:///data/x", "file:/data/x", "file://localhost/data/x", "file:///data//x/", "file:///data/y/../x"):
        assert open_storage(url).url == "file:///data/x"
    assert open_storage("file:///data/a b#c?d").url == "file:///data/a b#c?d"
    for url in ("file://host/data", "file:data", "/data", "ftp://host/data", "", "hdfs://nn/x"):
        with pytest.raises(ConfigError):
            open_storage(url)
    with pytest.raises(ConfigError) as raised:
        open_storage("ftp://user:secret@host/data")
    assert "secret" not in str(raised.value)


def test_reading_creates_nothing(storage: FileStorage, root: Path) -> None:
    assert list(storage.list("")) == []
    assert list(storage.list_folders("")) == []
    assert storage.size("k") is None
    storage.delete(["k"])
    assert not root.exists()


def test_an_object_is_one_plain_file(storage: FileStorage, root: Path) -> None:
    storage.put("log/1", b"entry")
    assert (root / "log" / "1").read_bytes() == b"entry"
    assert list((root / ".tmp").iterdir()) == []


def test_leftovers_are_never_seen_and_go_after_a_day(storage: FileStorage, root: Path) -> None:
    stream = root / "stream"
    (stream / ".tmp").mkdir(parents=True)
    old, new, strange = (stream / ".tmp" / name for name in (uuid4().hex, uuid4().hex, "thesis.doc"))
    for leftover in (old, new, strange):
        leftover.write_bytes(b"half")
    day_ago = time.time() - 25 * 3600
    for leftover in (old, strange):
        os.utime(leftover, (day_ago, day_ago))
    assert list(storage.list("")) == []
    assert list(storage.list_folders("")) == []
    FileStorage(f"file://{stream}").put("k", b"v")
    assert [stored.key for stored in storage.list("")] == ["stream/k"]
    assert not old.exists()
    assert new.exists()
    assert strange.exists()


def test_a_writer_killed_at_any_call_leaves_nothing_or_all(root: Path, tmp_path: Path) -> None:
    """The child dies at its n-th system call that changes the file system, for every n until it gets through."""
    code = f"""
import os, sys
from spark_ckpt.storage.file import FileStorage
left = int(sys.argv[1])
def audit(event, args):
    global left
    if event in ("open", "os.mkdir", "os.link", "os.rename", "os.remove"):
        left -= 1
        if left < 0:
            os._exit(9)
storage = FileStorage("file://{root}")
sys.addaudithook(audit)
storage.put_if_absent("log/" + sys.argv[1], b"whole entry")
storage.put("seg/" + sys.argv[1], b"whole segment")
"""
    survivor = FileStorage(f"file://{root}")
    for number in range(60):
        child = subprocess.run([sys.executable, "-c", code, str(number)], check=False)
        assert child.returncode in (0, 9)
        for stored in survivor.list(""):
            assert survivor.get(stored.key) in (b"whole entry", b"whole segment")
        if child.returncode == 0:
            break
    assert child.returncode == 0
    assert survivor.get(f"log/{number}") == b"whole entry"
    assert number > 5
    assert survivor.put_if_absent(f"log/{number}", b"other") is PutResult.EXISTS


def test_everything_is_synced_before_the_put_returns(root: Path, tmp_path: Path) -> None:
    """strace shows the order that a power loss would test: data, then the name, then every folder up to the root."""
    trace = tmp_path / "trace"
    code = f"from spark_ckpt.storage.file import FileStorage\nFileStorage('file://{root}').put_if_absent('a/b/k', b'v')"
    command = ["strace", "-f", "-y", "-e", "trace=fsync,link,linkat", "-o", str(trace), sys.executable, "-c", code]
    try:
        done = subprocess.run(command, check=False, capture_output=True)
    except FileNotFoundError:
        pytest.skip("strace is not installed")
    if done.returncode != 0:
        pytest.skip("strace is not allowed to trace here")
    calls = [line.split(None, 1)[1] for line in trace.read_text().splitlines() if "link" in line or "fsync" in line]
    link = next(number for number, call in enumerate(calls) if call.startswith("link"))
    assert re.match(rf"fsync\(\d+<{re.escape(str(root))}/\.tmp/[0-9a-f]{{32}}>", calls[link - 1])
    synced = [call.split("<", 1)[1].split(">", 1)[0] for call in calls[link + 1 :] if call.startswith("fsync")]
    assert synced == [f"{root}/a/b", f"{root}/a", str(root)]
    assert any(f"<{root.parent}>" in call for call in calls[:link])


def test_emptied_folders_go(storage: FileStorage, root: Path) -> None:
    storage.put("run-1/seg/a", b"v")
    storage.put("run-1/chk-1/_metadata", b"v")
    storage.delete(["run-1/seg/a"])
    assert not (root / "run-1" / "seg").exists()
    storage.delete(["run-1/chk-1/_metadata"])
    assert not (root / "run-1").exists()
    assert root.exists()


def test_a_full_disk_names_the_path_and_stores_nothing(root: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: write(2) fails in the middle just so."""
    (tmp_path / "big").write_bytes(bytes(100_000))
    code = f"""
import resource
from collections.abc import Callable
from pathlib import Path
from spark_ckpt.errors import StorageError, StorageSetupError
from spark_ckpt.storage import Slice
from spark_ckpt.storage.file import FileStorage
storage = FileStorage("file://{root}")
storage.put("before", b"v")
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
slices = [Slice(Path("{tmp_path}/big"), 0, 100_000)]
for call in (lambda: storage.put_slices("big", slices), lambda: storage.put_if_absent("big", bytes(60_000))):
    try:
        call()
    except StorageError as error:
        assert not isinstance(error, StorageSetupError)
        print(error)
assert [s.key for s in storage.list("")] == ["before"]
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(str(root) in line and "spark.ckpt.storage" in line and "free space" in line for line in lines)
    assert list((root / ".tmp").iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_really_full_disk(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk takes root")
    try:
        storage = FileStorage(f"file://{small}/root")
        with pytest.raises(StorageError, match=os.strerror(errno.ENOSPC)):
            storage.put("big", bytes(100_000))
        storage.put("little", b"v")
        assert [stored.key for stored in storage.list("")] == ["little"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_folder_that_may_not_be_written(root: Path) -> None:
    root.mkdir()
    storage = FileStorage(f"file://{root}/below")
    if os.geteuid() == 0:
        storage = FileStorage("file:///proc/self/spark-ckpt")  # not even root may make folders there
    else:
        root.chmod(0o500)
    with pytest.raises(StorageSetupError, match=r"cannot create .*spark\.ckpt\.storage"):
        storage.put("k", b"v")
    root.chmod(0o700)


def test_a_root_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageSetupError, match="file/root"):
        FileStorage(f"file://{tmp_path}/file/root").put("k", b"v")


def test_an_object_in_the_way_of_a_folder(storage: FileStorage) -> None:
    storage.put("a", b"v")
    for call in (lambda: storage.put("a/b", b"v"), lambda: storage.put_if_absent("a/b", b"v")):
        with pytest.raises(StorageError, match="/a"):
            call()
    assert [stored.key for stored in storage.list("")] == ["a"]


def test_a_name_too_long(storage: FileStorage) -> None:
    storage.put("a", b"v")
    for call in (
        lambda: storage.put("x" * 300, b"v"),
        lambda: storage.put_if_absent("x" * 300 + "/y", b"v"),
        lambda: storage.get("x" * 300),
    ):
        with pytest.raises(StorageSetupError, match="too long; use a shorter checkpointLocation"):
            call()
    with pytest.raises(StorageSetupError, match="too long; use a shorter checkpointLocation"):
        FileStorage(f"file:///tmp/{'x' * 300}").put("k", b"v")


def test_too_many_open_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Callable[[FileStorage], object]] = [
        lambda s: s.put("k", b"v"),
        lambda s: s.get("k"),
        lambda s: list(s.list("")),
        lambda s: s.delete(["k"]),
    ]
    for call in calls:
        with monkeypatch.context() as patch:
            failing(patch, "open", errno.EMFILE, done=False, times=100)
            with pytest.raises(StorageError, match=r"; raise the number of files that may be open \(ulimit -n\)") as raised:
                call(FileStorage(f"file://{root}"))
        assert not isinstance(raised.value, StorageSetupError)


@pytest.fixture
def searched_only() -> Iterator[FileStorage]:
    """The storage of somebody who lets others search its folders, and not read them, for one of these others."""
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(f"file://{folder}/root")
        storage.put("log/1", b"v")
        storage.put("run/seg/a", b"v")
        others = os.geteuid() == 0
        Path(folder).chmod(0o755)
        closed = [Path(folder, "root", "log"), Path(folder, "root", "run"), Path(folder, "root")]
        for path in closed:
            path.chmod(0o711 if others else 0o111)
        os.seteuid(65534 if others else os.geteuid())
        try:
            yield FileStorage(storage.url)
        finally:
            os.seteuid(os.getuid())
            for path in reversed(closed):
                path.chmod(0o700)


def test_of_a_folder_that_may_only_be_searched_objects_are_read_by_name(searched_only: FileStorage) -> None:
    assert searched_only.get("log/1") == b"v"
    assert searched_only.size("log/1") == 1
    assert searched_only.size("log/2") is None
    assert [stored.key for stored in searched_only.list("run/seg/")] == ["run/seg/a"]
    for prefix in ("", "log/"):
        with pytest.raises(StorageSetupError, match=r"cannot list .*Permission denied; give this user access"):
            list(searched_only.list(prefix))
    with pytest.raises(StorageSetupError, match="Permission denied; give this user access"):
        searched_only.put("log/2", b"v")
    with pytest.raises(StorageSetupError, match="Permission denied; give this user access"):
        searched_only.delete(["log/1"])


def test_the_root_may_vanish_and_come_back(storage: FileStorage, root: Path) -> None:
    storage.put("a/k", b"v")
    storage.delete(["a/k"])
    (root / ".tmp").rmdir()
    root.rmdir()
    assert storage.put_if_absent("b/k", b"w") is PutResult.STORED
    assert storage.get("b/k") == b"w"


def test_the_probe_works_there(storage: FileStorage, tmp_path: Path) -> None:
    check_put_if_absent(storage)
    (tmp_path / "f").write_bytes(b"x")
    storage.put_slices("probe-not", [Slice(tmp_path / "f", 0, 1)])
    assert [stored.key for stored in storage.list("probe")] == ["probe-not"]


def test_a_folder_that_comes_and_goes_hides_no_put(storage: FileStorage) -> None:
    """Each emptying of the folder removes it, in the midst of what the others do."""
    failed: list[BaseException] = []

    def work(own: str) -> None:
        try:
            for _ in range(300):
                storage.put(own, b"v")
                assert storage.get(own) == b"v"
                storage.delete([own])
                assert storage.put_if_absent(own, b"w") is PutResult.STORED
                storage.delete([own])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(f"shared/deep/{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_file_where_a_folder_is_needed_is_named(storage: FileStorage) -> None:
    storage.put("taken", b"v")
    with pytest.raises(StorageError, match=r"/taken is a file or a link where a folder is needed; remove it"):
        storage.put("taken/below", b"v")


def test_a_pipe_in_its_folder_is_no_object(storage: FileStorage, root: Path) -> None:
    storage.put("a", b"x")
    os.mkfifo(root / "waits")
    with pytest.raises(ObjectMissingError):
        storage.get("waits")


def test_what_nobody_can_ask_for_is_not_listed(storage: FileStorage, root: Path) -> None:
    """Another program may have put it there."""
    storage.put("run-1/a", b"v")
    for name in (b"run-1/7-a\nb", b"run-1/\xff", b"run-2\x7f/seg/d"):
        path = os.fsencode(root) + b"/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"x")
    assert [stored.key for stored in storage.list("")] == ["run-1/a"]
    assert list(storage.list_folders("run-")) == ["run-1/"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that is none of the storage's, with files older than a day."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("thesis.doc", uuid4().hex):
        (folder / name).write_bytes(b"precious")
        os.utime(folder / name, (0, 0))
    return folder


def test_what_lies_behind_a_link_is_neither_swept_nor_written(root: Path, elsewhere: Path) -> None:
    """The mere start of a driver sweeps what an earlier one has left."""
    before = sorted(elsewhere.iterdir())
    root.mkdir()
    (root / ".tmp").symlink_to(elsewhere)
    with pytest.raises(StorageSetupError, match=r"/\.tmp is a file or a link where a folder is needed; remove it"):
        FileStorage(f"file://{root}").put("log/1", b"v")
    (root / ".tmp").unlink()
    (root / "run-00000001").symlink_to(elsewhere)
    (root / "log").mkdir()
    (root / "log" / "deep").symlink_to(elsewhere)
    storage = FileStorage(f"file://{root}")
    for key in ("run-00000001/seg/a", "run-00000001/thesis.doc", "log/deep/a"):
        for put in (storage.put, storage.put_if_absent):
            with pytest.raises(StorageSetupError, match="is a file or a link where a folder is needed"):
                put(key, b"v")
    assert sorted(elsewhere.iterdir()) == before
    assert all(path.read_bytes() == b"precious" for path in before)


def test_what_lies_behind_a_link_is_neither_listed_read_nor_deleted(storage: FileStorage, root: Path, elsewhere: Path) -> None:
    storage.put("run-00000000/seg/a", b"v")
    (root / "run-00000000" / "sst").symlink_to(elsewhere)
    (root / "run-00000001").symlink_to(elsewhere)
    (root / "run-00000000" / "seg" / "b").symlink_to(elsewhere / "thesis.doc")
    keys = ["run-00000000/sst/thesis.doc", "run-00000001/thesis.doc", "run-00000000/seg/b"]
    assert [stored.key for stored in storage.list("")] == ["run-00000000/seg/a"]
    assert list(storage.list("run-00000000/sst/")) == []
    assert list(storage.list_folders("run-")) == ["run-00000000/"]
    for key in keys:
        assert storage.size(key) is None
        with pytest.raises(ObjectMissingError):
            storage.get(key)
    storage.delete(keys)
    assert sorted(path.read_bytes() for path in elsewhere.iterdir()) == [b"precious"] * 2


def test_the_root_may_be_a_link(root: Path, elsewhere: Path) -> None:
    root.symlink_to(elsewhere)
    storage = FileStorage(f"file://{root}")
    storage.put("log/1", b"v")
    assert storage.get("log/1") == (elsewhere / "log" / "1").read_bytes() == b"v"
    assert [stored.key for stored in storage.list("log/")] == ["log/1"]
    storage.delete(["log/1"])
    assert not (elsewhere / "log").exists()


def test_of_a_large_folder_only_what_is_asked_for_is_kept(storage: FileStorage, root: Path) -> None:
    """A log may have a million entries, and a start asks for what lies behind the last one that it knows."""
    (root / "log").mkdir(parents=True)
    for number in range(20_000):
        (root / "log" / f"{number:020d}").touch()
    last = [f"log/{number:020d}" for number in (19_998, 19_999)]
    tracemalloc.start()
    try:
        assert [s.key for s in storage.list("log/", f"log/{19_997:020d}")] == last
        assert [s.key for s in storage.list(last[0])] == last[:1]
        assert list(storage.list("log/", last[1])) == []
        assert tracemalloc.get_traced_memory()[1] < 200_000, "less than ten bytes a name"
    finally:
        tracemalloc.stop()
    assert next(storage.list("log/")).key == f"log/{0:020d}"
    assert len(list(storage.list("log/"))) == 20_000


# ---- a network file system, whose answers get lost


def failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int, done: bool, times: int = 1, skip: int = 0) -> None:
    """Calls of this system call, the first if none are skipped, end in an error; `done`: though they do what they are asked."""
    real, count = getattr(os, name), itertools.count()

    def call(*args: Any, **named: Any) -> Any:
        if not skip <= next(count) < skip + times:
            return real(*args, **named)
        if done:
            real(*args, **named)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.EREMOTEIO, errno.EINTR])
def test_a_name_whose_answer_is_lost_may_be_there(
    storage: FileStorage, root: Path, monkeypatch: pytest.MonkeyPatch, number: int, done: bool
) -> None:
    storage.put("log/0", b"before")
    for call, store in (("link", storage.put_if_absent), ("replace", storage.put)):
        failing(monkeypatch, call, number, done)
        with pytest.raises(OutcomeUnknownError, match=rf"log/{call}.*{os.strerror(number)}.*; "):
            store(f"log/{call}", b"v")
        assert storage.size(f"log/{call}") == (1 if done else None)
        if done:
            assert storage.put_if_absent(f"log/{call}", b"w") is PutResult.EXISTS
    assert list((root / ".tmp").iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EXDEV, errno.EMFILE, errno.ENAMETOOLONG])
def test_a_name_that_is_refused_is_not_there(storage: FileStorage, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    storage.put("log/0", b"before")
    for call, store in (("link", storage.put_if_absent), ("replace", storage.put)):
        failing(monkeypatch, call, number, done=False)
        with pytest.raises(StorageError, match=f"log/{call}") as raised:
            store(f"log/{call}", b"v")
        assert not isinstance(raised.value, OutcomeUnknownError)


def test_a_rename_that_was_sent_twice_may_be_done(storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of a network file system sends a request again, and is told that what it is to rename is not there any more."""
    storage.put("log/0", b"before")
    failing(monkeypatch, "replace", errno.ENOENT, done=True)
    with pytest.raises(OutcomeUnknownError, match="log/1"):
        storage.put("log/1", b"v")
    assert storage.get("log/1") == b"v"


def test_what_could_not_be_synced_is_read_when_it_is(storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not know whether it is there reads it back, and takes what it reads for durable."""
    storage.put("log/0", b"before")
    real, broken = os.fsync, [True]

    def fsync(fd: int) -> None:
        if broken[0] and stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OutcomeUnknownError, match=r"could not be synced"):
        storage.put_if_absent("log/1", b"v")
    with pytest.raises(StorageError, match=r"log/1.*could not be synced"):
        storage.get("log/1")
    assert storage.get("log/0") == b"before"
    broken[0] = False
    assert storage.get("log/1") == b"v"


STALE = [
    ("link", lambda s: s.put_if_absent("log/2", b"y"), PutResult.STORED),
    ("replace", lambda s: s.put("log/3", b"y"), None),
    ("scandir", lambda s: [stored.key for stored in s.list("log/")], ["log/1"]),
    ("scandir", lambda s: list(s.list_folders("")), ["log/"]),
    ("stat", lambda s: s.size("log/1"), 1),
    ("pread", lambda s: s.get("log/1"), b"x"),
    ("fstat", lambda s: s.get("log/1"), b"x"),
    ("open", lambda s: s.get("log/1"), b"x"),
    ("unlink", lambda s: (s.delete(["log/1"]), s.size("log/1")), (None, None)),
]


@pytest.mark.parametrize(("name", "call", "result"), STALE)
def test_a_folder_that_another_machine_has_made_anew_is_looked_into_again(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[FileStorage], object], result: object
) -> None:
    storage.put("log/1", b"x")
    failing(monkeypatch, name, errno.ESTALE, done=False)
    assert call(storage) == result


@pytest.mark.parametrize(("name", "call", "_result"), STALE)
def test_a_folder_that_stays_stale_is_not_taken_for_empty(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[FileStorage], object], _result: object
) -> None:
    """The whole mount may be so."""
    storage.put("log/1", b"x")
    with monkeypatch.context() as patch:
        failing(patch, name, errno.ESTALE, done=False, times=1000)
        with pytest.raises(StorageError, match=r"(Stale|vanishing).*; "):
            call(storage)
    assert storage.get("log/1") == b"x"


def test_a_name_that_was_given_in_a_stale_folder_may_be_there(storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put("log/0", b"before")
    failing(monkeypatch, "link", errno.ESTALE, done=True)
    assert storage.put_if_absent("log/1", b"v") is PutResult.EXISTS
    failing(monkeypatch, "link", errno.ESTALE, done=True)
    failing(monkeypatch, "link", errno.EACCES, done=False, skip=1)
    with pytest.raises(OutcomeUnknownError, match="log/2"):
        storage.put_if_absent("log/2", b"v")
    assert storage.get("log/2") == b"v"


@pytest.mark.parametrize("looked", [errno.ENOENT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
@pytest.mark.parametrize(("call", "named"), [("link", errno.ESTALE), ("replace", errno.ESTALE), ("replace", errno.ENOENT)])
def test_a_name_whose_answer_is_lost_may_be_there_whatever_has_become_of_the_temporary_file(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch, call: str, named: int, looked: int
) -> None:
    storage.put("log/0", b"before")
    store = storage.put_if_absent if call == "link" else storage.put
    with monkeypatch.context() as patch:
        failing(patch, call, named, done=True)
        failing(patch, "stat", looked, done=False, times=1000)
        with pytest.raises(OutcomeUnknownError, match=r"cannot tell whether .*log/1.*\.tmp/.*; "):
            store("log/1", b"v")
    assert storage.get("log/1") == b"v"


def test_a_put_whose_temporary_file_is_removed_is_told_so(storage: FileStorage, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put("log/0", b"before")
    real = os.link

    def link(source: str, *args: Any, **named: Any) -> None:
        (root / ".tmp" / source).unlink()
        real(source, *args, **named)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StorageError, match=r"\.tmp/.* was removed while it was in use; ") as raised:
        storage.put_if_absent("log/1", b"v")
    assert not isinstance(raised.value, OutcomeUnknownError)
    assert storage.size("log/1") is None


@pytest.mark.parametrize("size", [3 * CHUNK, 4 * CHUNK, 10])
def test_a_read_that_is_gone_on_with_does_not_join_two_versions(
    storage: FileStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Another machine's put takes the file's place, and its handle is stale."""
    other = FileStorage(storage.url)
    for read in (lambda: storage.get("a/k"), lambda: storage.get_to_file("a/k", 0, 3 * CHUNK, tmp_path / "local")):
        storage.put("a/k", b"A" * 3 * CHUNK)
        with monkeypatch.context() as patch:
            real, count = os.pread, itertools.count()

            def pread(*args: Any, real: Callable[..., bytes] = real, count: Iterator[int] = count) -> bytes:
                if next(count) == 1:
                    other.put("a/k", b"B" * size)
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
                return real(*args)

            patch.setattr(os, "pread", pread)
            with pytest.raises(StorageError, match=r"a/k was replaced while it was read; ") as raised:
                read()
        assert not isinstance(raised.value, DamagedError)
    assert storage.get("a/k") == b"B" * size


def test_a_read_goes_on_in_the_same_file(storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"A" * CHUNK + b"B" * CHUNK + b"C"
    storage.put("a/k", data)
    failing(monkeypatch, "pread", errno.ESTALE, done=False, skip=1)
    assert storage.get("a/k") == data
