"""Whose processor time counts for whom."""

from __future__ import annotations

import os

import pytest

from benchmarks import processes


def test_who_serves_an_application_is_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An S3 server and its proxy work the more, the faster it asks."""
    own, server, application, orphan, stranger = os.getpid(), 11, 12, 13, 14
    used = dict.fromkeys((own, server, application, orphan, stranger), 0.0)
    clock = [0.0]
    monkeypatch.setattr("benchmarks.processes.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("benchmarks.processes.os.cpu_count", lambda: 2)
    monkeypatch.setattr(processes, "machine_cpu_ms", lambda: sum(used.values()))
    monkeypatch.setattr(processes, "cpu_ms", used.__getitem__)
    monkeypatch.setattr(processes, "_tree", lambda _: {own, server, application})
    monkeypatch.setattr(processes, "of_session", lambda _: [(application, "java"), (orphan, "python -m spark_ckpt.agent")])
    used[server] = 900
    elsewhere = processes.Elsewhere()
    clock[0] = 1.0
    used |= {own: 50, server: 1900, application: 300, orphan: 80, stranger: 40}
    assert elsewhere.percent(application) == pytest.approx(100 * 40 / 2000)
