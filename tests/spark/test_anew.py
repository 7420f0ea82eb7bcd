"""A stream that was deleted on purpose begins anew, and its sinks, which skip the batch ids they have seen, lose no row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Application
from inputs import write_events
from oracle import read

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

Start = Callable[..., Application]
BEFORE, AFTER = 3, 2
KINDS = {"unique": "append", "stateless": "append", "inner": "append", "update": "upsert"}


@pytest.mark.parametrize("interval", ["0", "1h"])
def test_a_stream_that_was_deleted_begins_anew_into_the_same_sinks(interval: str, start: Start, tmp_path: Path) -> None:
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

    whole: dict[str, Counter[str]] = {}
    for n, folder in enumerate((archive / "0", source)):
        expected = tmp_path / f"batch-{n}"
        start("anew.py", "batch", str(folder), str(expected), storage=None, plugin=False).expect_success()
        for name, kind in KINDS.items():
            found = read(expected / name)
            whole[name] = found if kind == "upsert" else whole.get(name, Counter()) + found
    for name in KINDS:
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
