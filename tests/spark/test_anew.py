"""A stream that was deleted on purpose begins anew, and its sinks, which skip the batch ids they have seen, lose no row."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Start, submit
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.oracle import read

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

BEFORE, AFTER = 3, 2
KINDS = {"unique": "append", "stateless": "append", "inner": "append", "update": "upsert"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    """What each query gives of what comes before and after the deletion, by batch queries."""
    tmp = tmp_path_factory.mktemp("anew")
    write_events(tmp / "before", 0, BEFORE)
    write_events(tmp / "after", BEFORE, AFTER + 1)
    args = ("batch", str(tmp), str(tmp / "before"), str(tmp / "after"))
    with submit("anew.py", args, log=tmp / "batch.log", storage=None, plugin=False) as app:
        app.expect_success()
    found = {name: [read(tmp / n / name) for n in ("0", "1")] for name in KINDS}
    return {name: after if KINDS[name] == "upsert" else before + after for name, (before, after) in found.items()}


@pytest.mark.parametrize("interval", ["0", "1h"])
def test_a_stream_that_was_deleted_begins_anew_into_the_same_sinks(
    interval: str, start: Start, whole: dict[str, Counter[str]], tmp_path: Path
) -> None:
    source, archive = tmp_path / "input" / "events", tmp_path / "archive"
    write_events(source, 0, BEFORE)
    write_events(archive / "1", BEFORE, AFTER)
    locations, out, storage = tmp_path / "locations", tmp_path / "out", f"file://{tmp_path}/storage"
    args = (str(source), str(locations), str(out), str(archive))
    conf = {"spark.ckpt.interval": interval}
    app = start("anew.py", "first", *args, storage=storage, conf={**conf, "spark.ckpt.onStop": "DELETE"})
    assert app.wait() != 0, app.tail()
    refused = (archive / "refused").read_text()
    assert "Spark begins transformWithState, and what has an initial state, with epoch 0 only" in refused, app.tail()
    write_events(source, BEFORE + AFTER, 1)
    start("anew.py", "second", *args, storage=storage, conf=conf).expect_success()

    for name in KINDS:
        assert whole[name]
        ours = read(out / name)
        assert (whole[name] - ours, ours - whole[name]) == (Counter(), Counter()), name
    assert read(out / "identified") == read(out / "unique")

    for name in (*KINDS, "identified"):
        entries = [json.loads(e.read_text()) for e in sorted((tmp_path / "storage").glob(f"**/locations/{name}/log/*"))]
        (used,) = (e["used"] for e in entries if e["type"] == "end")
        assert used >= BEFORE - 1
        assert [e["first"] for e in entries if e["type"] == "claim"] == [None, used + 1, used + 1 if interval != "0" else None]
        planned = [e["epoch"] for e in entries if e["type"] == "plan" and not e["rerun"]]
        assert planned == list(range(len(planned)))
        assert len(planned) > used + AFTER
