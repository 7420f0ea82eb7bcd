"""What makes up a checkpoint, as it comes through the pipe: acks of executors, states of the query's hooks."""

from __future__ import annotations

import importlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any

from spark_ckpt.model import LARGEST_NUMBER, Ack, Decline, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.process.pipe import Message, collect_less
from spark_ckpt.protocol import events as ev

ACKS = b'{"type":"acks",'
"""How a line of them begins."""

SHARED_NAMES = 1_000
"""How many names of objects are known at most before a message. Not `sys.intern`: in CPython 3.12.0 to 3.12.6 what is interned stays for
ever (python/cpython#113993)."""
_OBJECTS = 10
"""That an epoch makes for a store and keeps, with room: ack, snapshot, handles, what is counted of them."""
_HandleRow = tuple[HandleKind, str, str, int, int, int]
_row = attrgetter("kind", "name", "object", "offset", "length", "checksum")


def hook_states(doc: Mapping[str, Any] | None) -> ev.HookStates:
    """Of one epoch; None: the query has no hooks."""
    if doc is None:
        return ev.HookStates()
    states = {str(name): None if state is None else b64decode(state, validate=True) for name, state in doc["states"].items()}
    return ev.HookStates(states, str(doc.get("declined") or ""))


@cache
def acks_reader() -> Callable[[bytes], Message] | None:
    """Reads a line of nothing but acks into structures, where `json` would make dictionaries. It raises ValueError for anything else. None:
    this interpreter lacks msgspec.

    `python -m benchmarks finalise` says how long acknowledgements take."""
    try:
        msgspec = importlib.import_module("msgspec")
    except ImportError:
        return None
    bounds = {"gt": -LARGEST_NUMBER, "lt": LARGEST_NUMBER}
    time, size = Annotated[float, msgspec.Meta(**bounds)], Annotated[int, msgspec.Meta(**bounds)]
    numbers = dict.fromkeys(("run", "epoch", "op", "part", "version"), int)
    texts = dict.fromkeys(("store", "uid", "executor"), str)
    times = dict.fromkeys(("sync_ms", "async_ms", "start_delay_ms"), time)
    fields = {**numbers, **texts, **times, "new_bytes": size, "handles": list[_HandleRow], "num_keys": int | None}
    row = msgspec.defstruct("AckRow", [*fields.items(), ("commit_delay_ms", time | None, None)], gc=False)
    line = msgspec.defstruct("AcksLine", [("root", str), ("acks", list[row])], gc=False)  # type: ignore[valid-type]
    decode = msgspec.json.Decoder(line).decode

    def read(data: bytes) -> Message:
        try:
            found = decode(data)
        except msgspec.MsgspecError as error:  # no ValueError before 0.21
            raise ValueError(str(error)) from error
        return {"type": "acks", "root": found.root, "acks": found.acks}

    return read


class Intake:
    """Acks of one stream. Knows the newest snapshot of each store: most files of a snapshot were in the one before, and need not be made
    and kept twice.

    For one thread.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[Any, Any, Any], Snapshot] = {}
        self._objects: dict[str, str] = {}
        """Acks of many stores name the same segments."""

    def take(self, rows: Iterable[Any]) -> tuple[list[Ack], list[Decline]]:
        """Of one message, read by `acks_reader` or as JSON. Raises ValueError, TypeError, KeyError or OverflowError for what is none."""
        acks, declines = list[Ack](), list[Decline]()
        if len(self._objects) > SHARED_NAMES:
            self._objects.clear()
        for row in rows:
            if not isinstance(row, dict):
                acks.append(self._read(row))
            elif "decline" in row:
                declines.append(Decline.from_json(row))
            else:
                acks.append(self._ack(row))
        collect_less(_OBJECTS * len(self._newest))
        return acks, declines

    def _ack(self, row: Mapping[str, Any]) -> Ack:
        store = row["op"], row["part"], row["store"]
        ack = Ack.from_json(row, self._newest.get(store), self._objects)
        self._newest[store] = ack.snapshot
        return ack

    def _read(self, row: Any) -> Ack:
        key = row.op, row.part, row.store
        before = self._newest.get(key)
        known = {h.name: h for h in before.handles} if before else {}
        snapshot = self._newest[key] = Snapshot(
            before.store if before else StoreId(*key),
            row.version,
            row.uid,
            tuple([h if (h := known.get(r[1])) is not None and _row(h) == r else self._handle(*r) for r in row.handles]),
            row.num_keys,
        )
        return Ack(
            row.run,
            row.epoch,
            snapshot,
            row.executor,
            row.new_bytes,
            row.sync_ms,
            row.async_ms,
            row.start_delay_ms,
            row.commit_delay_ms or 0.0,
        )

    def _handle(self, kind: HandleKind, name: str, obj: str, offset: int, length: int, checksum: int) -> Handle:
        return Handle(kind, name, self._objects.setdefault(obj, obj), offset, length, checksum)
