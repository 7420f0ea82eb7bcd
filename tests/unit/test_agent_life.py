"""When an agent, and a stream within it, ends."""

from __future__ import annotations

from pathlib import Path

from tests.unit.agent_stores import WAIT_S, AgentProcess, FakeStore


def test_an_agent_with_a_broken_stream_says_so_and_ends(tmp_path: Path) -> None:
    agent, store = AgentProcess(tmp_path / "spool"), FakeStore(tmp_path / "spool" / "0-0")
    store.commit()
    agent.send({**store.message(f"file://{tmp_path}/storage", 0, None), "sync_ms": float("nan")})
    agent.send({"type": "flush"})
    assert agent.process.wait(WAIT_S) == 1
    agent.wait_for(lambda line: line.get("level") == "ERROR" and "cannot go on: internal error" in line["message"])
