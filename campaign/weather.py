"""Faults on the wire: one kind for each case, for a moment, every few seconds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from benchmarks.far_s3 import PROXY, FarS3
from campaign.dimensions import Fault
from testbed.toxiproxy import Toxiproxy

PAUSE_S = (1.5, 6.0)
LASTS_S: Mapping[Fault, tuple[float, float]] = {
    Fault.LATENCY: (1.0, 4.0),
    Fault.RESET: (0.05, 0.5),
    Fault.LOST_ANSWER: (0.05, 0.5),
    Fault.AWAY: (0.5, 5.0),
}
LATENCY_MS, JITTER_MS = 400, 300
KEPT_BYTES = 26
"""Of an answer: less than its headers, so the client does not know that the put was done."""


class Weather:
    """Use as a context manager; `spells` counts how often it struck. Raises at its end what the proxy refused meanwhile (OSError)."""

    def __init__(self, s3: FarS3, fault: Fault, seed: str) -> None:
        assert s3.wire is not None
        self.spells = 0
        self._wire, self._fault = s3.wire, fault
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._go, name="weather", daemon=True)

    def __enter__(self) -> Weather:
        if self._fault is not Fault.NONE:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._fault is not Fault.NONE:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _go(self) -> None:
        begin, end = spell(self._wire, self._fault)
        try:
            while not self._over.wait(self._rng.uniform(*PAUSE_S)):
                begin()
                self.spells += 1
                self._over.wait(self._rng.uniform(*LASTS_S[self._fault]))
                end()
        except OSError as e:
            self._error = e


def spell(wire: Toxiproxy, fault: Fault) -> tuple[Callable[[], None], Callable[[], None]]:
    """What begins it and what ends it."""
    if fault is Fault.AWAY:
        return lambda: wire.enable(PROXY, False), lambda: wire.enable(PROXY, True)
    kind, attributes = {
        Fault.LATENCY: ("latency", {"latency": LATENCY_MS, "jitter": JITTER_MS}),
        Fault.RESET: ("reset_peer", {"timeout": 0}),
        Fault.LOST_ANSWER: ("limit_data", {"bytes": KEPT_BYTES}),
    }[fault]
    return lambda: wire.add(PROXY, "fault", kind, "downstream", attributes), lambda: wire.remove(PROXY, "fault")
