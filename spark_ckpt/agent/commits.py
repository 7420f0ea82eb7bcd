"""What a task tells about a state store's commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_ckpt.model import CheckpointId, Handle, StoreId


@dataclass(frozen=True, slots=True)
class Commit:
    """A store committed a version into its spool folder (docs/pipes.md, `commit`).

    `checkpoint`: its epoch is a checkpoint, so it has to become durable. `late`: so has this store's commit of that older epoch.
    `sparse`: packs of which little is needed any more; what this commit needs of them is stored anew.
    `handles`: with which an agent before has acknowledged it, None if none has.
    """

    run: int
    epoch: int
    base: CheckpointId | None
    store: StoreId
    version: int
    uid: str
    base_uid: str | None
    folder: str
    sync_ms: float
    start_delay_ms: float
    num_keys: int | None
    checkpoint: bool
    late: int | None
    commit_delay_ms: float
    sparse: frozenset[str] = frozenset()
    handles: tuple[Handle, ...] | None = None

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Commit:
        keys, late, rows = doc.get("num_keys"), doc.get("late"), doc.get("handles")
        return Commit(
            int(doc["run"]),
            int(doc["epoch"]),
            CheckpointId.from_json(doc["base"]) if doc.get("base") else None,
            StoreId(int(doc["op"]), int(doc["part"]), str(doc["store"])),
            int(doc["version"]),
            str(doc["uid"]),
            doc.get("base_uid"),
            str(doc["dir"]),
            float(doc.get("sync_ms") or 0),
            float(doc.get("start_delay_ms") or 0),
            None if keys is None else int(keys),
            bool(doc.get("checkpoint", True)),
            None if late is None else int(late),
            float(doc.get("commit_delay_ms") or 0),
            frozenset(str(name) for name in doc.get("sparse") or ()),
            None if rows is None else tuple(Handle.from_json(row) for row in rows),
        )
