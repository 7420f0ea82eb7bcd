"""The driver-side process: messages of the JVM to the streams they belong to (docs/pipes.md)."""

from __future__ import annotations

import importlib
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from spark_ckpt import __version__
from spark_ckpt.conf.options import Options, parse_options, shown_options
from spark_ckpt.conf.spark_settings import spark_settings
from spark_ckpt.conf.words import AT_LEAST_ONCE, CLAIM, DELETE, DISCARD, FAIL
from spark_ckpt.coordinator import file_transfer
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.coordinator.intake import hook_states
from spark_ckpt.coordinator.messages import Fields, wanted_message
from spark_ckpt.coordinator.pool import Pool
from spark_ckpt.coordinator.storage_work import Pools
from spark_ckpt.coordinator.worker import RefusedError, StreamWorker
from spark_ckpt.errors import CheckpointError, ConflictError, DamagedError, ErrorKind
from spark_ckpt.model import CheckpointId, Job
from spark_ckpt.paths import parse_checkpoint_url, stream_url
from spark_ckpt.process.packages import check_jar, packages_for, require
from spark_ckpt.process.pipe import Handler, Message, Pipe, Reply
from spark_ckpt.process.scratch import remove_dead_temporaries
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import is_numbered
from spark_ckpt.protocol.entries import Application, Claim
from spark_ckpt.protocol.operators import OperatorChoice
from spark_ckpt.protocol.reasons import HandoverFailure
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.places import Places

Opener = Callable[[str, S3Options], Storage]
FOREGROUND_THREADS = 32
"""A stream has one put in flight; streams beyond this many would wait for a server that is slow to answer the others."""
ELSEWHERE_THREADS = 4
AHEAD = 64
"""In at-least-once: epochs that may run while their plans are not stored yet."""
LOOKED = 8
LAST_STEPS = 4
END_S = 10.0
"""How long puts and deletions in hand may take after the end of stdin, in seconds."""


class Coordinator:
    """Handlers for `pipe.serve`. One application, any number of streams, each named by its root."""

    def __init__(self, pipe: Pipe, opener: Opener = open_storage) -> None:
        self._pipe = pipe
        self._opener = opener
        self._options: Options | None = None
        self._reached = False
        """Has the application been answered by its storage before? Else one that is away is a mistake in its options, and told at once."""
        self._host = ""
        self._spark_version = ""
        self._workers: dict[str, StreamWorker] = {}
        self._leaving: set[StreamWorker] = set()
        """Stopped, with deletions still in hand."""
        self._looked: OrderedDict[str, StorageActions] = OrderedDict()
        self._looked_lock = threading.Lock()
        """Of queries that are being analysed, and of the last few that got no further."""
        self._urls: dict[str, str] = {}
        self._restored: dict[str, str | None] = {}
        """By root, of streams that were stopped too: where each lies, and what its last start was restored from."""
        foreground, elsewhere = Pool(FOREGROUND_THREADS, "storage"), Pool(ELSEWHERE_THREADS, "savepoint")
        self._pools = Pools(foreground, Pool(1, "deletion"), Pool(1, "trimming"), elsewhere)

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "hello": self._hello,
            "ping": self._ping,
            "open": self._open,
            "start": self._start,
            "resume": self._resume,
            "trigger": self._trigger,
            "seal": self._seal,
            "finish": self._finish,
            "acks": self._acks,
            "holding": self._holding,
            "want": self._want,
            "executors_lost": self._executors_lost,
            "damaged": self._damaged,
            "stop": self._stop,
        }

    def close(self, seconds: float = END_S) -> None:
        """The JVM has gone: finish the puts and deletions that are in hand, start nothing new."""
        deadline = time.monotonic() + seconds
        workers = [*self._workers.values(), *tuple(self._leaving)]
        for worker in workers:
            worker.end()
        # The answer to a put may lead to one more question (it was lost: read back), that to a deletion, and that to another one.
        for _ in range(LAST_STEPS):
            for worker in workers:
                worker.quiet(max(0.0, deadline - time.monotonic()))
            self._pools.foreground.wait(max(0.0, deadline - time.monotonic()))
            self._pools.background.wait(max(0.0, deadline - time.monotonic()))
            self._pools.elsewhere.wait(max(0.0, deadline - time.monotonic()))

    # --- the application

    def _hello(self, message: Message) -> Reply:
        check_jar(message.get("jar"))
        conf, spark = _texts(message["conf"]), _texts(message.get("spark") or {})
        options = parse_options(conf)
        settings = spark_settings(conf, spark)
        require(packages_for(options.storage))
        self._options = options
        self._reached = message.get("replaces") is True
        self._host = str(message.get("host", ""))
        self._spark_version = str(message.get("spark_version", ""))
        threading.Thread(target=_prepare, name="prepare", daemon=True).start()
        limits = {"limits": _limits(options), "hooks": _hooks(options)}
        return {"version": __version__, "set": settings, "options": shown_options(conf), **limits}

    def _greeted(self) -> Options:
        if self._options is None:
            raise CheckpointError("the coordinator was asked for a stream before it was greeted; JAR and Python package differ")
        return self._options

    def _worker(self, root: str) -> StreamWorker:
        worker = self._workers.get(root)
        if worker is None:
            options = self._greeted()
            actions = self._take_actions(root, options)
            worker = self._workers[root] = StreamWorker(
                root,
                actions,
                _settings(options),
                self._pools,
                self._pipe.send,
                restored=lambda path: self._restored.update({root: path}),
                ended=self._leaving.discard,
            )
            self._urls[root] = actions.url
        return worker

    def _take_actions(self, root: str, options: Options) -> StorageActions:
        """Those that a query which is about to start has looked with, else new ones."""
        with self._looked_lock:
            found = self._looked.pop(root, None)
        url = stream_url(options.storage, root)
        return found or StorageActions(url, lambda place: self._storage(root, place, options), _places(url, options))

    def _leave_actions(self, root: str, actions: StorageActions) -> None:
        with self._looked_lock:
            given_up = [self._looked[root]] if root in self._looked else []
            self._looked[root] = actions
            self._looked.move_to_end(root)
            while len(self._looked) > LOOKED:
                given_up.append(self._looked.popitem(last=False)[1])
        for one in given_up:
            one.close()

    def _storage(self, root: str, url: str, options: Options) -> Storage:
        storage = self._opener(url, replace(options.s3, outage_s=options.timeout_ms / 1000, reached=self._reached))
        storage.traffic.tell = lambda why: self._pipe.log("WARN", f"{root}: {why}")
        return storage

    def _ping(self, _: Message) -> Reply:
        """Answered once every stream's thread has shown that it goes on."""
        answer: Future[Fields] = Future()
        turns = [worker.turn() for worker in self._workers.values()]
        left = iter(range(len(turns), -1, -1))  # which several threads may count down

        def one_more(_: object = None) -> None:
            if next(left) == 0:
                answer.set_result({})

        one_more()
        for turn in turns:
            turn.add_done_callback(one_more)
        return answer

    # --- requests

    def _open(self, message: Message) -> Reply:
        root, local = str(message["root"]), message.get("query_id")
        worker = self._workers.get(root)
        actions = worker.actions if worker else self._take_actions(root, self._greeted())
        future: Future[Fields] = Future()

        def look() -> None:
            """Spark may still refuse the query: no stream begins here."""
            try:
                claim = actions.last_claim()
                self._reached = True
                found = _opened(actions.url, claim, local)
            except DamagedError as error:
                answer = partial(future.set_exception, RefusedError(ErrorKind.UNUSABLE, str(error)))
            except Exception as error:
                answer = partial(future.set_exception, error)
            else:
                answer = partial(future.set_result, found)
            if worker is None:
                self._leave_actions(root, actions)
            answer()

        if worker is None:
            self._pools.foreground.submit(look)
        else:
            worker.look(look)
        return future

    def _start(self, message: Message) -> Reply:
        worker = self._worker(str(message["root"]))
        worker.spark_run_id = str(message.get("run_id", ""))
        worker.actions.transfer.begin(message.get("folder"))
        event = ev.StartRequested(
            str(message["query_id"]),
            Job.from_json(message["job"]),
            tuple(str(path) for path in message.get("files") or ()),
            uuid.uuid4().hex,
            self._host,
            {"spark": self._spark_version, "spark-ckpt": __version__},
            _names(message),
            None if message.get("sink_seen") is None else int(message["sink_seen"]),
            self._restore(worker),
            worker.spark_run_id,
            message.get("again") is True,
            _application(message),
            (self._options and self._options.savepoint_dir) or "",
            message.get("compared") is not False,
            message.get("from_zero") is True,
            _hook_names(message),
            self._operators(),
            _planned(message),
            tuple(int(operator) for operator in message.get("initial") or ()),
            message.get("real_time") is True,
        )
        return worker.request("start", event)

    def _operators(self) -> OperatorChoice:
        options = self._options
        return OperatorChoice(options.restore_operators, options.restore_allow_non_restored) if options is not None else OperatorChoice()

    def _restore(self, worker: StreamWorker) -> ev.Restore | None:
        """What `spark.ckpt.restore.path` means for this query. One that lies in the folder of another query's stream is that one's."""
        options = self._options
        url = worker.actions.url
        path = _restore_path(url, options.restore_path) if options is not None else None
        if options is None or path is None:
            return None
        others = [other for root, other in self._urls.items() if root != worker.root]
        if not path.startswith(f"{url}/") and any(path.startswith(f"{other}/") for other in others):
            return None
        found = parse_checkpoint_url(path)
        own = found[1] if found is not None and found[0] == url else None
        rival = next((root for root, restored in tuple(self._restored.items()) if root != worker.root and restored == path), None)
        owned = options.restore_mode == CLAIM and found is None  # a checkpoint stays with the stream that made it
        return ev.Restore(path, own, owned, options.restore_plans == DISCARD, rival)

    def _resume(self, message: Message) -> Reply:
        sent = message.get("files")
        sent = sent if isinstance(sent, dict) else {}
        files = {path: _sent_again(path, content) for path, content in sent.items()}
        sealed = int(message.get("sealed", -1))
        run, claim, epoch = (int(message[name]) for name in ("run", "claim", "epoch"))
        hooks = _hook_names(message), hook_states(message.get("sealed_hooks"))
        real_time = message.get("real_time") is True, message.get("running") is True
        event = ev.ResumeRequested(run, claim, epoch, _names(message), sealed, files, *hooks, *real_time)
        worker = self._worker(str(message["root"]))
        worker.spark_run_id = str(message.get("run_id", ""))
        return worker.request("resume", event)

    def _trigger(self, message: Message) -> Reply:
        event = ev.TriggerRequested(
            int(message["epoch"]), file_transfer.read(message["offsets"]), _files(message), bool(message.get("drain"))
        )
        return self._worker(str(message["root"])).request("trigger", event)

    def _seal(self, message: Message) -> Reply:
        hooks = hook_states(message.get("hooks"))
        offsets = b"" if message.get("offsets") is None else file_transfer.read(message["offsets"])
        event = ev.SealRequested(int(message["epoch"]), file_transfer.read(message["commit"]), _files(message), hooks, offsets)
        return self._worker(str(message["root"])).request("seal", event)

    def _finish(self, message: Message) -> Reply:
        event = ev.FinishRequested(bool(message.get("stopping")), bool(message.get("drained")))
        return self._worker(str(message["root"])).request("finish", event)

    def _stop(self, message: Message) -> Reply:
        delete = self._options is not None and self._options.on_stop == DELETE and bool(message.get("by_person"))
        root, spark_run_id = str(message["root"]), message.get("run_id")
        worker = self._worker(root)
        if spark_run_id is not None and worker.spark_run_id not in ("", spark_run_id):
            return {}  # another start of the query has the stream by now
        del self._workers[root]
        self._leaving.add(worker)
        return worker.request("stop", ev.StopRequested(bool(message.get("failed")), delete))

    # --- one-way

    def _acks(self, message: Message) -> Reply:
        worker = self._workers.get(str(message["root"]))
        if worker is None:  # the run has ended
            return None
        acks, declines = worker.intake.take(message["acks"])
        if acks:
            worker.tell(ev.AcksReceived(acks))
        for decline in declines:
            worker.tell(ev.DeclineReceived(decline))
        return None

    def _holding(self, message: Message) -> Reply:
        held = frozenset(str(uid) for uid in message["held"])
        event = ev.HoldingReceived(str(message["executor"]), held, int(message.get("bytes", 0)))
        for worker in self._workers.values():
            worker.tell(event)
        return None

    def _want(self, message: Message) -> Reply:
        """A state is that of the epoch before its version."""
        root, uid = str(message["root"]), str(message["uid"])
        worker = self._workers.get(root)
        if worker is None:  # the run has ended
            self._pipe.send(wanted_message(root, do.NotHandedOver(uid, HandoverFailure.DECLINED, "the query is not running")))
        else:
            executors = frozenset(str(executor) for executor in message["executors"])
            worker.tell(ev.StateWanted(uid, int(message["version"]) - 1, executors))
        return None

    def _executors_lost(self, message: Message) -> Reply:
        event = ev.ExecutorsLost(frozenset(str(executor) for executor in message["executors"]))
        for worker in self._workers.values():
            worker.tell(event)
        return None

    def _damaged(self, message: Message) -> Reply:
        worker, name, checkpoint = self._workers.get(str(message["root"])), message.get("object"), message.get("checkpoint")
        if worker is not None:
            event = ev.DamageReported(
                None if name is None else str(name),
                None if checkpoint is None else CheckpointId.from_json(checkpoint),
                str(message.get("message", "")),
            )
            worker.tell(event)
        return None


def _restore_path(stream: str, given: Sequence[str]) -> str | None:
    """The one for the query whose stream that is: what lies in its folder; else the only one. Of several, the others are other queries'."""
    own = [path for path in given if path.startswith(f"{stream}/")]
    if own:
        return own[0]
    return given[0] if len(given) == 1 else None


def _places(url: str, options: Options) -> Places:
    owned = _restore_path(url, options.restore_path) if options.restore_mode == CLAIM else None
    return Places(url, options.savepoint_dir or "", owned or "")


def _limits(options: Options) -> Fields:
    """What the executors' JVMs are to keep to."""
    return {
        "timeout_ms": options.timeout_ms,
        "spool_max_bytes": options.spool_max_bytes,
        "full_spool_fails": options.spool_when_full == FAIL,
    }


def _hooks(options: Options) -> Fields:
    """What the driver's JVM is to keep to when it calls a query's hooks."""
    return {"timeout_ms": options.hooks_timeout_ms, "fails": options.hooks_on_failure == FAIL}


def _settings(options: Options) -> Settings:
    return Settings(
        retained=options.retained,
        timeout_ms=options.timeout_ms,
        interval_ms=options.interval_ms,
        min_pause_ms=options.min_pause_ms,
        max_concurrent=options.max_concurrent,
        tolerable_failures=options.tolerable_failures,
        ahead=AHEAD if options.mode == AT_LEAST_ONCE else 0,
        spool_max_bytes=options.spool_max_bytes,
    )


def _opened(url: str, claim: Claim | None, local: Any) -> Fields:
    if claim is not None and local is not None and claim.query_id != local:
        raise ConflictError(
            f"the storage {url} holds the checkpoints of query {claim.query_id}, but the checkpointLocation says it is query {local}; "
            "give this query a checkpointLocation of its own, or delete the local folder to go on with the stored one"
        )
    return {"query_id": claim.query_id if claim else None}


def _texts(conf: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in conf.items()}


def _application(message: Message) -> Application | None:
    said = message.get("application")
    return Application(*(str(said.get(name, "")) for name in ("id", "name", "user"))) if isinstance(said, dict) else None


def _names(message: Message) -> tuple[str, ...]:
    """Sources that are not known to replay."""
    return tuple(str(name) for name in message.get("forgetful") or ())


def _hook_names(message: Message) -> tuple[str, ...]:
    return tuple(str(name) for name in message.get("hooks") or ())


def _planned(message: Message) -> dict[str, bytes] | None:
    """What Spark has written for the query, planned as a new one."""
    files = message.get("planned")
    return {str(path): file_transfer.read(content) for path, content in files.items()} if isinstance(files, dict) else None


def _files(message: Message) -> ev.Changes:
    files: Mapping[str, Any] = message.get("files") or {}
    return {path: None if content is None else file_transfer.taken(content) for path, content in files.items()}


def _sent_again(path: str, content: Any) -> bytes | ev.LocalFile | None:
    """A file that the JVM sends to a coordinator which takes over: what is large, and may be an object, stays where it is."""
    if content is None:
        return None
    return file_transfer.read(content) if is_numbered(path) else file_transfer.taken(content)


def _prepare() -> None:
    """Pyarrow is loaded before the first checkpoint needs it; what killed processes have left of copies and of looks at snapshots goes."""
    importlib.import_module("pyarrow.parquet")
    remove_dead_temporaries()
