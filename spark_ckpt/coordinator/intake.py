"""Acks of one stream as they come through the pipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_ckpt.model import Ack, Snapshot


class Intake:
    """Knows the newest snapshot of each store: most files of a snapshot were in the one before, and need not be made and kept twice.

    For one thread.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[Any, Any, Any], Snapshot] = {}

    def take(self, row: Mapping[str, Any]) -> Ack:
        store = row["op"], row["part"], row["store"]
        ack = Ack.from_json(row, self._newest.get(store))
        self._newest[store] = ack.snapshot
        return ack
