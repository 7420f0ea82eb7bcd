"""What the driver's JVM is told of one stream (docs/pipes.md)."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from spark_ckpt import paths
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.errors import ErrorKind, printable
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import offsets_file, sources_of
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.instructions import Gate, RequestName
from spark_ckpt.protocol.reasons import HandoverFailure

Fields = Mapping[str, Any]


class Messages:
    """The fields of answers, and of what nobody has asked for."""

    def __init__(self, root: str, actions: StorageActions) -> None:
        self._root = root
        self._actions = actions

    def barrier(self, i: do.Started | do.Triggered, base: CheckpointId | None, checkpoint: bool, late: int | None = None) -> str:
        """The local property `spark.ckpt.barrier`."""
        doc = {
            "root": self._root,
            "stream": self._actions.url,
            "run": i.run,
            "epoch": i.epoch,
            "base": base.to_json() if base else None,
            "time_ms": i.time_ms,
            "checkpoint": checkpoint,
            "late": late,
            "version": i.version,
            "begins": i.begins,
            "sparse": i.sparse if isinstance(i, do.Triggered) else (),
        }
        return json.dumps(doc, separators=(",", ":"))

    def started(self, i: do.Started) -> Fields:
        """What was listed for epochs that are still to run belongs to the sources' logs from the start: a source reads its own when it is
        made."""
        listed = {path: content for p in i.planned for path, content in sources_of(p.files).items() if content is not None}
        offsets = {offsets_file(p.epoch): p.offsets for p in i.planned}
        given = self._actions.transfer.given({**i.files, **listed, **offsets})
        return {
            "run": i.run,
            "claim": i.claim,
            "origin": i.origin.to_json() if i.origin else None,
            "epoch": i.epoch,
            "barrier": self.barrier(i, i.origin, i.gate is Gate.EPOCH),
            "gate": i.gate.value,
            "real_time": i.real_time,
            **self._actions.transfer.part(
                {
                    "files": {path: content for path, content in given.items() if path not in offsets},
                    "planned": [{"epoch": p.epoch, "offsets": given[offsets_file(p.epoch)]} for p in i.planned],
                    "hooks": {name: b64encode(state).decode() for name, state in i.hooks.items()},
                }
            ),
        }

    def compare(self, i: do.Compare) -> Fields:
        return {"compare": {"path": i.path, "epoch": i.epoch, "plan": i.plan, "files": self._actions.transfer.given(i.files)}}

    def sealed(self, i: do.Sealed) -> Fields:
        return {"checkpoint": None if i.summary is None else self._summary(i.summary), "lag": i.lag.to_json()}

    def event(self, i: do.Announce, process: str) -> Fields:
        """`process`: the name under which this one's requests to the storage are counted."""
        storage = {"process": process, **self._actions.traffic.to_json()}
        return {"type": "event", "root": self._root, "event": i.event.value, **self._summary(i.summary), "storage": storage}

    def log(self, level: str, message: str) -> Fields:
        return {"type": "log", "level": level, "message": printable(f"{self._root}: {message}")}

    def late(self, i: do.Late) -> Fields:
        return {"type": "late", "root": self._root, "run": i.run, "epoch": i.epoch}

    def hooks(self, i: do.TellHooks) -> Fields:
        return {"type": "hooks", "root": self._root, "completed" if i.completed else "aborted": i.epoch}

    def hand_over(self, i: do.HandOver) -> Fields:
        return {"type": "handover", "root": self._root, "uid": i.uid}

    def wanted(self, i: do.HandedOver | do.NotHandedOver) -> Fields:
        return wanted_message(self._root, i)

    def stopping(self, i: do.Stopping) -> Fields:
        return {"type": "stopping", "root": self._root, "run": i.run, "drain": i.drain}

    def failed(self, i: do.Failed) -> Fields:
        return {"type": "failed", "root": self._root, "kind": i.kind.value, "message": printable(i.message)}

    def _summary(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        checkpoint = CheckpointId(summary["run"], summary["epoch"])
        told = {"message": printable(summary["message"])} if "message" in summary else {}
        return {**summary, **told, "path": paths.checkpoint_url(self._actions.url, checkpoint)}


def wanted_message(root: str, i: do.HandedOver | do.NotHandedOver) -> Fields:
    answer: Fields
    if isinstance(i, do.HandedOver):
        answer = {"handles": [handle.to_json() for handle in i.handles], "lost": False, "declined": None}
    else:
        lost = i.reason is HandoverFailure.LOST
        answer = {"handles": None, "lost": lost, "declined": None if lost else i.cause}
    return {"type": "wanted", "root": root, "uid": i.uid, **answer}


def refused_kind(i: do.Refused) -> ErrorKind:
    """What a run meets, the next start goes round. What a start meets, it has gone round already as far as that can be done."""
    final = i.request is RequestName.START and i.kind in (ErrorKind.DAMAGED, ErrorKind.MISSING)
    return ErrorKind.UNUSABLE if final else i.kind


def taken_over_message(last: Claim, pause_ms: int) -> str:
    app = last.application
    whose = f"application {app.name} ({app.id}) of {app.user}" if app else "another application"
    return (
        f"run {last.run}, of {printable(whose)} on host {printable(last.host)}, appended to the stream's log {pause_ms / 1000:.0f} s "
        "before this one claimed it. If that application was stopped or has died, all is well. If it still runs, "
        "two applications share this checkpointLocation: it stops at its next epoch, and this one has taken over its state; give one of "
        "the two a checkpointLocation or a spark.ckpt.storage of its own"
    )
