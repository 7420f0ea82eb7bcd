"""A query over lines of a server: the server goes away and comes back, the driver is killed. What is lost is what the documents say."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.drivers.line_server import LineServer
from tests.drivers.spark.harness import Application, Start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def counts(folder: Path) -> dict[int, int]:
    """value -> its count in the newest batch that has it."""
    batches = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {int(row["value"]): row["count"] for rows in batches for row in rows}


def texts(*numbers: int) -> list[str]:
    return [str(n) for n in range(*numbers)]


@pytest.mark.campaign
@pytest.mark.parametrize("killed", [False, True], ids=["driver stays", "driver dies"])
def test_a_server_that_goes_away_and_comes_back(killed: bool, start: Start, tmp_path: Path) -> None:
    out, checkpoints = tmp_path / "out", tmp_path / "checkpoints"

    def started() -> Application:
        """On a machine that has nothing but the storage."""
        shutil.rmtree(checkpoints, ignore_errors=True)
        args = (str(server.port), str(own.port), str(nobody.port), str(checkpoints), str(out))
        # Nothing of a socket replays: the interval changes nothing for these queries.
        return start("sockets.py", *args, storage=f"file://{tmp_path}/storage", conf={"spark.ckpt.interval": "10s"})

    def arrives(app: Application, name: str, expected: dict[int, int]) -> None:
        app.until(lambda: counts(out / name) == expected, f"{name} has {len(expected)} lines")

    with LineServer() as nobody:
        pass
    with LineServer() as server, LineServer() as own:
        app = started()
        for each in (server, own):
            each.until_connected()
            each.send(*texts(50))
        for name in ("retrying", "own"):
            arrives(app, name, dict.fromkeys(range(50), 1))
        said = app.log.read_text()
        for source in ("retrying-socket", "socket"):
            assert f"every epoch is a checkpoint, whatever spark.ckpt.interval says: {source} may not give the same data twice" in said
        # Nobody comes: the query gives up, and says why.
        app.until((out / "nobody-failed.txt").exists, "the end of the query that nobody sends anything")
        why = (out / "nobody-failed.txt").read_text()
        assert f"retrying-socket 127.0.0.1:{nobody.port}: no line in 4 connections or attempts to connect" in why
        assert "allow more than maxNumRetries=3" in why

        # Both servers are started again. Spark's own source does not come back, and its query does not say so.
        for each in (server, own):
            each.go_away()
        time.sleep(1)
        for each in (server, own):
            each.come_back()
        server.until_connected(2)
        server.send(*texts(50, 100))
        arrives(app, "retrying", dict.fromkeys(range(100), 1))
        assert own.accepted == 1
        assert app.running
        assert not (out / "own-failed.txt").exists()
        if not killed:
            (out / "end").touch()
            app.expect_success()
            return

        # The driver is killed in the middle of an epoch: the lines of that one are lost, and no others.
        (out / "hold").touch()
        server.send(*texts(100, 120))
        app.until((out / "held.json").exists, "an epoch that does not end")
        held = {int(row["value"]) for row in json.loads((out / "held.json").read_text())}
        app.kill()
        (out / "hold").unlink()
        app = started()
        server.until_connected(3)
        own.until_connected(2)
        server.send(*texts(200, 250))
        own.send(*texts(200, 270))
        arrives(app, "retrying", {n: 1 for n in range(250) if not 100 <= n < 200})
        assert held
        assert held <= set(range(100, 120))
        said = app.log.read_text()
        assert f"{len(held)} lines are lost: they had come for an epoch that runs again" in said
        # Spark's own source counts from the beginning again, and its query does not survive that.
        app.until((out / "own-failed.txt").exists, "the end of the query over Spark's own source")
        assert "Offsets committed out of order: 49 followed by" in (out / "own-failed.txt").read_text()
        (out / "end").touch()
        app.expect_success()
