"""What the agent's tests share: stores as Spark's engine writes them, its way of loading them, and an agent at the end of a pipe."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import threading
import uuid
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

from spark_ckpt import __version__
from spark_ckpt.agent.agent import Agent, Opener
from spark_ckpt.agent.changelog import parse_name, read_lineage
from spark_ckpt.agent.stream import PAUSES, Pauses
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Job, Snapshot
from spark_ckpt.paths import metadata_key
from spark_ckpt.process.pipe import Pipe, serve
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.metadata.codec import encode_metadata

ROOT = "file:/data/ckpt/orders"
WAIT_S = 30


def changelog_bytes(lineage: Mapping[int, str], payload: bytes) -> bytes:
    """A changelog as `StateStoreChangelogWriterV3` begins it, in one stored block of Java's `LZ4BlockOutputStream`."""
    items = json.dumps([{"version": v, "checkpointUniqueId": lineage[v]} for v in sorted(lineage)], separators=(",", ":")).encode()
    text = struct.pack(">H", 2) + b"v3" + struct.pack(">H", len(items)) + items + payload
    return b"LZ4Block" + bytes([0x15]) + struct.pack("<iii", len(text), len(text), 0) + text


@dataclass
class FakeStore:
    """One store's folder. `files` remembers everything ever written, as the truth to compare with."""

    folder: Path
    seed: int = 0
    operator: int = 0
    partition: int = 0
    name: str = "default"
    lineage: dict[int, str] = field(default_factory=dict)
    snapshots: set[int] = field(default_factory=set)
    ssts: dict[str, int] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return max(self.lineage, default=0)

    @property
    def uid(self) -> str | None:
        return self.lineage.get(self.version)

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = data
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def commit(self, payload: int = 40) -> None:
        """The next version's changelog; its lineage begins at the newest full snapshot, else at version 1."""
        version, uid = self.version + 1, str(uuid.uuid4())
        oldest = max((v for v in self.snapshots if v < version), default=1)
        ancestors = {v: u for v, u in self.lineage.items() if v >= oldest}
        self.write(f"{version}_{uid}.changelog", changelog_bytes(ancestors, os.urandom(payload)))
        self.lineage[version] = uid

    def snapshot(self, version: int, new_ssts: tuple[int, ...] = (50,), keep: int = 10) -> None:
        """A full snapshot: new SSTs of those lengths, and the last `keep` older ones."""
        names = dict(list(self.ssts.items())[-keep:]) if keep else {}
        for length in new_ssts:
            sst = f"{len(self.ssts):06d}-{uuid.uuid4()}.sst"
            self.write(f"SSTs/{sst}", os.urandom(length))
            names[sst] = self.ssts[sst] = length
        document = {
            "sstFiles": [{"localFileName": n[:6] + ".sst", "dfsSstFileName": n, "sizeBytes": size} for n, size in names.items()],
            "numKeys": 97,
            "numInternalKeys": 0,
            "columnFamilyMapping": {},
            "columnFamilyTypeMap": {},
            "maxColumnFamilyId": 0,
        }
        path = self.folder / "being-written"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("MANIFEST-000005", os.urandom(20))
            archive.writestr("000004.log", b"")
            archive.writestr("metadata", "v1\n" + json.dumps(document, separators=(",", ":")))
        data = path.read_bytes()
        path.unlink()
        self.write(f"{version}_{self.lineage[version]}.zip", data)
        self.snapshots.add(version)

    def message(
        self, stream: str, epoch: int, base: CheckpointId | None, run: int = 1, base_uid: str | None = None, **more: Any
    ) -> dict[str, Any]:
        return {
            **more,
            "type": "commit",
            "root": ROOT,
            "stream": stream,
            "run": run,
            "epoch": epoch,
            "base": base.to_json() if base else None,
            "op": self.operator,
            "part": self.partition,
            "store": self.name,
            "version": self.version,
            "uid": self.uid,
            "base_uid": base_uid or self.lineage.get(self.version - 1),
            "dir": str(self.folder),
            "sync_ms": 1.5,
            "start_delay_ms": 2,
            "commit_delay_ms": 3.5,
            "num_keys": None,
        }

    def fetch_message(self, stream: str, base: CheckpointId | None, folder: Path) -> dict[str, Any]:
        message = self.message(stream, 0, base)
        return {**message, "type": "fetch", "dir": str(folder)}


def needed(folder: Path, version: int, uid: str) -> list[str]:
    """The files that Spark would read to load a version from the folder (`RocksDB.loadWithCheckpointId`). Fails if it could not."""
    own = folder / f"{version}_{uid}.changelog"
    lineage = {version: uid}
    if own.exists():
        ancestors = read_lineage(own)
        assert ancestors is not None, f"{own.name} has no lineage"
        lineage |= ancestors
    full = [v for v in lineage if (folder / f"{v}_{lineage[v]}.zip").exists()]
    names: list[str] = []
    start = max(full, default=0)
    if start:
        zip_name = f"{start}_{lineage[start]}.zip"
        with zipfile.ZipFile(folder / zip_name) as archive:
            document = json.loads(archive.read("metadata").split(b"\n", 1)[1])
        names += [f"SSTs/{f['dfsSstFileName']}" for f in document["sstFiles"]] + [zip_name]
    else:
        assert min(lineage) == 1, f"no full snapshot for a lineage that begins at {min(lineage)}"
    names += [f"{v}_{lineage[v]}.changelog" for v in range(start + 1, version + 1)]
    assert all((folder / n).exists() for n in names), f"missing: {[n for n in names if not (folder / n).exists()]}"
    return names


def check_loads(folder: Path, store: FakeStore, snapshot: Snapshot) -> None:
    """A fetched folder loads, and every byte is what the engine wrote."""
    for name in needed(folder, snapshot.version, snapshot.uid):
        assert (folder / name).read_bytes() == store.files[name], name
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert present == {h.name for h in snapshot.handles}
    named = [h.name for h in snapshot.handles]
    last = parse_name(named[-1])
    assert last is not None
    assert last[:2] == (snapshot.version, snapshot.uid)


def staged(spool: Path) -> list[Path]:
    """What the living agents of a spool still have to upload."""
    return [path for folder in spool.glob(".agent-*") for path in folder.iterdir() if path.name != "lock"]


def complete(storage: Storage, checkpoint: CheckpointId, snapshots: list[Snapshot]) -> CheckpointId:
    """Store a checkpoint's `_metadata`, as the coordinator would."""
    job = Job(("stateStoreSave",), ("rate",), "noop")
    value = Checkpoint(checkpoint, 1, 1, str(uuid.UUID(int=1)), 1_700_000_000_000, job, {}, tuple(snapshots), {})
    storage.put(metadata_key(checkpoint), encode_metadata(value))
    return checkpoint


class Client(ABC):
    """The executor's end of the pipes."""

    living: ClassVar[set[Client]] = set()
    """Those that a test has not ended; its fixture does."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self.living.add(self)
        self._reader, self._writer = reader, writer
        self._changed = threading.Condition()
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self.acks: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self._next = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._reader:
            message = json.loads(line)
            with self._changed:
                self.lines.append(message)
                if message.get("type") == "acks":
                    self.acks += message["acks"]
                if message.get("re") in self._answers:
                    self._answers.pop(message["re"]).set_result(message)
                self._changed.notify_all()

    def send(self, message: Mapping[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        self._writer.flush()

    def begin(self, message: Mapping[str, Any]) -> Future[dict[str, Any]]:
        with self._changed:
            self._next += 1
            answer = self._answers[self._next] = Future()
            number = self._next
        self.send({"id": number, **message})
        return answer

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return self.begin(message).result(WAIT_S)

    def settled(self, uid: str | None, count: int = 1) -> dict[str, Any]:
        """The ack or decline (the `count`-th) of a unique id."""

        def found() -> list[dict[str, Any]]:
            return [a for a in self.acks if a["uid"] == uid]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, WAIT_S), f"no answer to {uid}; lines: {self.lines}"
            return found()[count - 1]

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Until such a line has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(wanted(line) for line in self.lines), WAIT_S), f"lines: {self.lines}"

    def ack(self, uid: str | None, count: int = 1) -> Ack:
        answer = self.settled(uid, count)
        assert "decline" not in answer, answer
        return Ack.from_json(answer)

    def decline(self, uid: str | None) -> str:
        answer = self.settled(uid)
        assert "decline" in answer, answer
        return str(answer["decline"])

    def hello(self, spool: Path, conf: Mapping[str, str], executor: str) -> dict[str, Any]:
        spool.mkdir(parents=True, exist_ok=True)
        return self.ask({"type": "hello", "jar": __version__, "conf": dict(conf), "executor": executor, "spool": str(spool)})

    def close(self) -> None:
        self.living.discard(self)
        self._writer.close()
        self._thread.join(WAIT_S)

    @abstractmethod
    def kill(self) -> None:
        """Nothing is finished, nothing is cleaned up."""


class _Writer(io.FileIO):
    """An agent's end of a pipe. A thread of an abandoned agent may still write."""

    def write(self, data: Any, /) -> int:
        if self.closed:
            raise BrokenPipeError
        return super().write(data) or 0


class LocalAgent(Client):
    """An agent in a thread of this process, with any storage."""

    def __init__(
        self,
        spool: Path,
        opener: Opener = open_storage,
        conf: Mapping[str, str] | None = None,
        pauses: Pauses = PAUSES,
        executor: str = "1",
    ) -> None:
        down, up = os.pipe(), os.pipe()
        reader, writer = os.fdopen(down[0], "rb"), _Writer(up[1], "wb")
        pipe = Pipe(reader, cast(BinaryIO, writer))
        self.died: list[int] = []
        self.agent = Agent(pipe, opener, self.died.append, pauses)
        self._abandoned = False

        def run() -> None:
            serve(pipe, self.agent.handlers)
            if not self._abandoned:
                self.agent.close()
            writer.close()
            reader.close()

        self._runner = threading.Thread(target=run, daemon=True)
        self._runner.start()
        super().__init__(os.fdopen(up[0], "rb"), os.fdopen(down[1], "wb"))
        assert self.hello(spool, conf or {}, executor)["ok"] is True

    def close(self) -> None:
        super().close()
        self._runner.join(WAIT_S)
        assert self._abandoned or not self.died, "the agent could not go on, see its log lines"

    def kill(self) -> None:
        """As far as a thread can be killed: it may still try to say something, to nobody."""
        self._abandoned = True
        self.close()


class AgentProcess(Client):
    """`python -m spark_ckpt.agent`."""

    def __init__(self, spool: Path, **conf: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "spark_ckpt.agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        super().__init__(cast(BinaryIO, self.process.stdout), cast(BinaryIO, self.process.stdin))
        assert self.hello(spool, conf, "1")["ok"] is True

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        super().close()

    def end(self) -> int:
        super().close()
        return self.process.wait(WAIT_S)
