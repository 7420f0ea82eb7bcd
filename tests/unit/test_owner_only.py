"""State on the local disk is its owner's alone, whatever the umask."""

from __future__ import annotations

import os
import random
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_ckpt.agent.fetches import Fetcher
from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.agent.staging import Staging
from spark_ckpt.model import HandleKind
from spark_ckpt.process import owner_only
from spark_ckpt.process.scratch import TEMPORARY, ScratchFolder
from spark_ckpt.storage.memory import MemoryStorage, wipe
from tests.drivers.checkpoints import written


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)
    wipe("private")


def modes(root: Path) -> set[str]:
    """Of all that lies below a folder."""
    return {stat.filemode(path.lstat().st_mode) for path in root.rglob("*")}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system: no hard link leads there."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def test_what_an_agent_fetches_and_stages(tmp_path: Path, elsewhere: Path) -> None:
    storage = MemoryStorage("memory://private/s")
    checkpoint = written(storage, random.Random(3), 3)
    folder = tmp_path / "spool" / "store" / "0"
    staging = Staging(tmp_path / "spool")
    with ThreadPoolExecutor(2) as pool:
        for snapshot in checkpoint.snapshots:
            Fetcher(staging, pool, RestoreRoom(0)).fetch(storage, snapshot.handles, folder / str(snapshot.store.partition), "here")

    some = elsewhere / next(path for path in folder.rglob("*") if path.is_file()).name
    some.write_bytes(b"as an engine has written it")
    some.chmod(0o644)
    with pytest.raises(OSError, match="Invalid cross-device link"):
        os.link(some, tmp_path / "link")
    staging.stage(HandleKind.CHANGELOG, str(some.parent), some.name)
    some.unlink()
    assert modes(tmp_path) == {"drwx------", "-rw-------"}
    staging.close()


def test_what_is_copied_or_unpacked(tmp_path: Path) -> None:
    with ScratchFolder(tmp_path / "new" / "tmp", TEMPORARY) as scratch:
        storage = MemoryStorage("memory://private/t")
        storage.put("a", b"12345")
        storage.get_to_file("a", 0, 5, scratch / "file")
        owner_only.make_folder(scratch / "x" / "y")
        with open(scratch / "x" / "z", "xb", opener=owner_only.opener):
            pass
        assert modes(tmp_path) == {"drwx------", "-rw-------"}
