"""What makes up a checkpoint, as it comes through the pipe: acks of executors, states of the query's hooks."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from spark_ckpt.model import Ack, Snapshot
from spark_ckpt.protocol import events as ev


def hook_states(doc: Mapping[str, Any] | None) -> ev.HookStates:
    """Of one epoch; None: the query has no hooks."""
    if doc is None:
        return ev.HookStates()
    states = {str(name): None if state is None else b64decode(state, validate=True) for name, state in doc["states"].items()}
    return ev.HookStates(states, str(doc.get("declined") or ""))


class Intake:
    """Acks of one stream. Knows the newest snapshot of each store: most files of a snapshot were in the one before, and need not be made
    and kept twice.

    For one thread.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[Any, Any, Any], Snapshot] = {}

    def take(self, row: Mapping[str, Any]) -> Ack:
        store = row["op"], row["part"], row["store"]
        ack = Ack.from_json(row, self._newest.get(store))
        self._newest[store] = ack.snapshot
        return ack
