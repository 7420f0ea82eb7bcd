"""The agent: one per executor, told by it what was committed and what is needed (docs/pipes.md)."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from spark_ckpt import __version__
from spark_ckpt.agent.commits import Commit
from spark_ckpt.agent.fetches import Fetcher, FetchRequest
from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.agent.spool_fill import SpoolFill
from spark_ckpt.agent.spools import Spools
from spark_ckpt.agent.staging import Staging
from spark_ckpt.agent.stream import PAUSES, AgentStream, Pauses
from spark_ckpt.conf.options import Options, parse_options
from spark_ckpt.errors import CheckpointError
from spark_ckpt.model import CheckpointId, StoreId
from spark_ckpt.process.packages import check_jar, packages_for, require
from spark_ckpt.process.pipe import Handler, Message, Pipe, Reply, describe
from spark_ckpt.storage import S3Options, Storage, open_storage

FETCHES_AT_ONCE = 16
READS_AT_ONCE = 16
END_S = 30.0
"""How long queued uploads may take after the end of stdin, in seconds."""
REPORTED_EVERY_S = 1.0

Opener = Callable[[str, S3Options], Storage]


class Agent:
    """`handlers` for `pipe.serve`, then `close`."""

    def __init__(self, pipe: Pipe, opener: Opener = open_storage, die: Callable[[int], object] = os._exit, pauses: Pauses = PAUSES) -> None:
        """`die` ends the process at once."""
        self._pipe = pipe
        self._opener = opener
        self._die = die
        self._pauses = pauses
        self._lock = threading.Lock()
        self._options = Options()
        self._executor = ""
        self._fill: SpoolFill | None = None
        self._spools: Spools | None = None
        self._staging: Staging | None = None
        self._fetcher: Fetcher | None = None
        self._streams: dict[tuple[str, str], AgentStream] = {}
        self._fetches = ThreadPoolExecutor(FETCHES_AT_ONCE, thread_name_prefix="fetch")
        self._reads = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read")
        self._process = ""
        self._leaving: set[AgentStream] = set()
        self._gone: dict[str, Counter[str]] = {}
        """By root: what ended streams have asked of their storage."""
        self._reported: dict[str, Mapping[str, int]] = {}
        self._ending = threading.Event()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "hello": self._hello,
            "ping": lambda _: {},
            "commit": self._commit,
            "late": self._late,
            "handover": self._handover,
            "evacuate": self._evacuate,
            "flush": self._flush,
            "fetch": self._fetch,
            "ahead": self._ahead,
            "over": self._over,
        }

    def close(self, seconds: float = END_S) -> None:
        """Finish the queued uploads within that time, remove the staging folder. Threads may still hang in a storage afterwards."""
        deadline = time.monotonic() + seconds
        self._ending.set()
        self._fetches.shutdown(wait=False, cancel_futures=True)
        streams = list(self._streams.values())
        for stream in streams:
            stream.flush()
        for stream in streams:
            stream.end(deadline)
        self._reads.shutdown(wait=False, cancel_futures=True)
        if self._staging is not None:
            self._staging.close()

    def leave_spool(self) -> None:
        """After `close`, where the executor has gone."""
        if self._spools is not None:
            self._spools.end()

    def _hello(self, message: Message) -> Reply:
        check_jar(message.get("jar"))
        self._options = parse_options({str(k): str(v) for k, v in (message.get("conf") or {}).items()})
        require(packages_for(self._options.storage))
        self._executor = str(message["executor"])
        if self._staging is None:
            self._process = f"agent {self._executor} {uuid.uuid4().hex}"
            threading.Thread(target=self._report, name="report", daemon=True).start()
            spool = Path(message["spool"])
            self._fill = SpoolFill(self._options.spool_max_bytes, self._pipe.send, self._relieve)
            self._staging = Staging(spool, self._fill.changed)
            self._spools = Spools(spool, self._options.local_recovery and self._options.spool_dir is not None)
            earlier = self._spools.earlier if self._options.local_recovery else lambda _: ()
            self._fetcher = Fetcher(self._staging, self._reads, RestoreRoom(self._options.spool_max_bytes // 4), earlier)
        return {"version": __version__}

    def _commit(self, message: Message) -> Reply:
        try:
            self._stream(message).commit(Commit.from_json(message))
        except Exception as error:
            # The storage cannot even be opened, or the package was replaced under this process: the epoch must not wait for an ack that
            # never comes.
            about = {k: message.get(k) for k in ("run", "epoch", "op", "part", "store", "uid")}
            row = {**about, "executor": self._executor, "decline": describe(error)["message"]}
            self._pipe.send({"type": "acks", "root": message.get("root"), "acks": [row]})
        return None

    def _late(self, message: Message) -> Reply:
        for stream in self._streams_of(message["root"]):
            stream.late(int(message["run"]), int(message["epoch"]))
        return None

    def _handover(self, message: Message) -> Reply:
        for stream in self._streams_of(message["root"]):
            stream.hand_over(StoreId(int(message["op"]), int(message["part"]), str(message["store"])), str(message["uid"]))
        return None

    def _evacuate(self, _: Message) -> Reply:
        for stream in self._streams_of():
            stream.evacuate()
        return None

    def _flush(self, message: Message) -> Reply:
        for stream in self._streams_of(message.get("root")):
            stream.flush()
        return None

    def _over(self, message: Message) -> Reply:
        """A stream ends with its newest run. What comes for its location from then on begins another."""
        root, run = str(message["root"]), int(message["run"])
        with self._lock:
            leaving = [stream for stream in self._streams.values() if stream.root == root and stream.run <= run]
            self._streams = {key: stream for key, stream in self._streams.items() if stream not in leaving}
            self._leaving.update(leaving)
        for stream in leaving:
            stream.leave(self._left)
        return None

    def _left(self, stream: AgentStream) -> None:
        with self._lock:
            self._leaving.remove(stream)
            self._gone.setdefault(stream.root, Counter()).update(stream.report())

    def _relieve(self) -> None:
        for stream in self._streams_of():
            stream.relieve()

    def _report(self) -> None:
        """While uploads hang nothing else tells how much waits."""
        while not self._ending.wait(REPORTED_EVERY_S):
            if self._fill is not None:
                self._fill.flush()
            for root, report in self._reports().items():
                if report != self._reported.get(root):
                    self._reported[root] = report
                    self._send({"type": "storage", "root": root, "storage": {"process": self._process, **report}})

    def _reports(self) -> Mapping[str, Mapping[str, int]]:
        """By root, since this process began."""
        with self._lock:
            found = {root: Counter(gone) for root, gone in self._gone.items()}
            for stream in [*self._streams.values(), *self._leaving]:
                found.setdefault(stream.root, Counter()).update(stream.report())
        return found

    def _streams_of(self, root: str | None = None) -> list[AgentStream]:
        with self._lock:
            return [stream for (of, _), stream in self._streams.items() if root is None or of == root]

    def _fetch(self, message: Message) -> Reply:
        stream, fetcher = self._stream(message), self._fetcher
        if fetcher is None:
            raise CheckpointError("a fetch came before hello; the JAR and the Python package are of different versions")

        def fetched() -> Mapping[str, Any]:
            return stream.fetch(fetcher, FetchRequest.from_json(message)).to_json()

        fetch: Future[Mapping[str, Any]] = self._fetches.submit(fetched)
        return fetch

    def _ahead(self, message: Message) -> Reply:
        stream, fetcher = self._stream(message), self._fetcher
        if fetcher is not None:
            run, base = int(message["run"]), CheckpointId.from_json(message["base"])
            self._fetches.submit(stream.read_ahead, fetcher, run, base, Path(message["dir"]))
        return None

    def _stream(self, message: Message) -> AgentStream:
        """Asked for in the thread that reads the pipe only: there a stream does not end between this and what it is told."""
        root, url = str(message["root"]), str(message["stream"])
        if self._staging is None:
            raise CheckpointError("a commit or fetch came before hello; the JAR and the Python package are of different versions")
        with self._lock:
            stream = self._streams.get((root, url))
            if stream is None:
                retry_s = self._options.timeout_ms / 1000
                # That the storage can be reached at all is the coordinator's to find out.
                storage = self._opener(url, replace(self._options.s3, outage_s=retry_s, reached=True))
                storage.traffic.tell = partial(self._trouble, root, "request")
                relief_bytes = self._options.spool_max_bytes // 2
                tell = (self._send, partial(self._trouble, root, "upload"), self._broken)
                stream = AgentStream(root, storage, self._staging, self._executor, retry_s, relief_bytes, *tell, self._pauses)
                self._streams[(root, url)] = stream
            stream.run = max(stream.run, int(message["run"]))
            return stream

    def _send(self, message: Message) -> None:
        self._pipe.send(message)
        if self._fill is not None:
            self._fill.flush()

    def _broken(self, error: Exception) -> None:
        """An agent that acknowledges nothing more must not look healthy: the JVM replaces one that ends, and tells the next all again."""
        self._pipe.log("ERROR", f"the agent of executor {self._executor} cannot go on: {describe(error)['message']}")
        if not self._ending.is_set():
            sys.stderr.flush()
            self._die(1)

    def _trouble(self, root: str, of: str, text: str) -> None:
        """For the driver's log too: nobody reads those of the executors while a query only seems to be slow."""
        self._warn(text)
        self._pipe.send({"type": "trouble", "root": root, "executor": self._executor, "of": of, "message": text})

    def _warn(self, text: str) -> None:
        self._pipe.log("WARN", text)
