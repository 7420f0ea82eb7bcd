"""A fake JVM: drives a real coordinator process through its pipes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from spark_ckpt import __version__
from spark_ckpt.model import Ack
from spark_ckpt.storage.file import FileStorage
from tests.drivers.protocol_driving import CONTENT, JOB, ack, commit, offsets, uid_of

WAIT_S = 30


class FakeJvm:
    """One coordinator process. `ask` waits for its answer; `say` does not. Bulk data is written straight to the storage, as agents do."""

    def __init__(
        self, folder: Path, root: str = "file:/data/ckpt/orders", query: str = "q-1", module: str = "spark_ckpt.coordinator", **conf: str
    ) -> None:
        self.root = root
        self.query = query
        self.url = f"file://{folder}/data/ckpt/orders"
        self.storage = FileStorage(self.url)
        self.events: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.told: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.logs: list[str] = []
        self._answers: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._id = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        threading.Thread(target=self._read, daemon=True).start()
        options = {"spark.ckpt.storage": f"file://{folder}", **{f"spark.ckpt.{k}": v for k, v in conf.items()}}
        self.hello = self.ask("hello", jar=__version__, conf=options, spark={}, spark_version="4.3.0", host="h")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "re" in message:
                self._answers[message["re"]].put(message)
            elif message["type"] == "event":
                self.events.put(message)
            elif message["type"] in ("late", "failed", "stopping", "handover", "wanted", "hooks"):
                self.told.put(message)
            else:
                self.logs.append(message["message"])

    def send(self, kind: str, **fields: Any) -> int:
        self._id += 1
        self._answers[self._id] = SimpleQueue()
        self._write({"type": kind, "id": self._id, **fields})
        return self._id

    def say(self, kind: str, **fields: Any) -> None:
        self._write({"type": kind, **fields})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, request: int) -> dict[str, Any]:
        return self._answers[request].get(timeout=WAIT_S)

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self.answer(self.send(kind, **fields))

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(WAIT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)

    # --- a stream

    def start_fields(self, local: Iterable[str] = ()) -> dict[str, Any]:
        return {
            "root": self.root,
            "query_id": self.query,
            "run_id": "r",
            "job": JOB.to_json(),
            "files": list(local),
        }

    def start(self, local: Iterable[str] = ()) -> dict[str, Any]:
        return self.ask("start", **self.start_fields(local))

    def trigger(self, epoch: int, files: dict[str, bytes] | None = None) -> dict[str, Any]:
        return self.ask("trigger", root=self.root, epoch=epoch, offsets=b64(offsets(epoch)), files=encoded(files))

    def acks(self, run: int, epoch: int, partitions: Iterable[int] = (0, 1)) -> list[Ack]:
        made = [ack(run, epoch, p) for p in partitions]
        for one in made:
            for handle in one.snapshot.handles:
                self.storage.put_if_absent(handle.object, CONTENT)
        self.say("acks", root=self.root, acks=[one.to_json() for one in made])
        return made

    def seal_fields(self, run: int, epoch: int, partitions: int = 2) -> dict[str, Any]:
        content = commit([uid_of(run, epoch, p) for p in range(partitions)])
        return {"root": self.root, "epoch": epoch, "commit": b64(content), "files": {f"commits/{epoch}": b64(content)}}

    def seal(self, run: int, epoch: int) -> dict[str, Any]:
        return self.ask("seal", **self.seal_fields(run, epoch))

    def epoch(self, run: int, epoch: int) -> dict[str, Any]:
        self.trigger(epoch)
        self.acks(run, epoch)
        return self.seal(run, epoch)


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def encoded(files: dict[str, bytes] | None) -> dict[str, str]:
    return {path: b64(content) for path, content in (files or {}).items()}


Jvm = Callable[..., FakeJvm]
