"""The Checkpoints tab as a person sees it, in a browser: of a running application, and in the history server once it is gone.

`make screenshots` has them leave their pictures in docs/images.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.spark.browser import Browser
from tests.drivers.spark.event_logs import QUERY_ID, write_log, write_log_of_two_queries, write_rolling_log
from tests.drivers.spark.harness import Application
from tests.drivers.spark.history_server import history_server, until_listed
from tests.drivers.spark.inputs import FILES
from tests.drivers.spark.sightings import conf, lines
from tests.drivers.spark.tab import checked, get, picture

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EPOCHS = FILES + 3
KEPT = 1000
MOST_BYTES = 700_000
"""Of a page or an answer, at 2,000 partitions and 1,000 checkpoints."""


def everything(base: str) -> dict[str, Any]:
    return {
        "overview": checked(base, "/", "overview"),
        "config": checked(base, "/config", "config"),
        "details": checked(base, "/details/3", "details"),
        "subtasks": checked(base, "/details/3/subtasks/0", "subtasks"),
        "latencies": checked(base, "/latencies", "latencies"),
        "queries": checked(base, "/queries", "queries"),
    }


def latest(window: Browser) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in window.table("#checkpoint-latest")}


def look_around(window: Browser, base: str) -> None:
    """Every page, by clicking as a person does."""
    window.open(f"{base}/checkpoints/")
    counts = dict(zip(window.texts("#checkpoint-counts th"), window.texts("#checkpoint-counts td"), strict=True))
    assert counts == {"Triggered": str(EPOCHS), "In progress": "0", "Completed": str(EPOCHS), "Failed": "0", "Restored": "0"}
    assert "chk-10" in latest(window)["Completed checkpoint"][-1]
    assert window.table("#checkpoint-lag") == [["0", "0 ms", "0.0 B"]]
    captions = window.texts("figure.checkpoint-chart figcaption")
    assert captions[:4] == ["End to End Duration", "Checkpointed Size", "Full Size", "Latency to the Sink"]
    assert all(w > 200 for w in window.run("return [...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)"))

    window.click("#checkpoint-pages a", "History")
    rows = window.table("#checkpoints-table")
    assert [row[0] for row in rows] == [str(n) for n in reversed(range(EPOCHS))]
    assert {(row[2], row[3]) for row in rows} == {("completed", "6/6")}

    window.click("#checkpoints-table a", "3")
    assert "Checkpoint 3 of Run 1" in window.texts("h4")
    operators = {row[0]: row[1] for row in window.table("#operators-table")}
    assert operators == {"0: aggregate(window, key)": "3", "1: deduplicate(id, ts)": "3"}
    window.click("#operators-table a", "1: deduplicate(id, ts)")
    assert "Partitions of 1: deduplicate(id, ts)" in window.texts("h4")
    assert sorted(row[0] for row in window.table("#partitions-table")) == ["0", "1", "2"]

    window.click("#checkpoint-pages a", "Summary")
    assert [row[0] for row in window.table("#latency-summary")] == ["0: aggregate(window, key)", "1: deduplicate(id, ts)", "Sink"]
    assert [row[0] for row in window.table("#event-time-summary")] == ["Newest Event behind the Clock", "Watermark behind the Clock"]

    window.click("#checkpoint-pages a", "Configuration")
    options = {row[0]: row[1] for row in window.table("#checkpoint-options")}
    assert options["spark.ckpt.timeout"] == "10min"
    assert options["spark.ckpt.storage"].startswith("file:///")
    assert window.errors() == []


def test_a_running_application_and_what_the_history_server_shows_of_it(
    start: Callable[..., Application], events: Path, tmp_path: Path, window_if_any: Browser | None
) -> None:
    gate = tmp_path / "gate"
    args = ("seen.py", str(events), str(tmp_path / "location"), str(gate))
    app = start(*args, storage=f"file://{tmp_path}/storage", conf=conf(tmp_path / "events"))
    app.until(lambda: bool(lines(app, "UI")), "the query has ended")
    base, name = lines(app, "UI")[0].split()
    if window_if_any:
        look_around(window_if_any, base)
        picture(window_if_any, "live-configuration", tmp_path)
        window_if_any.open(f"{base}/checkpoints/")
        picture(window_if_any, "live-overview", tmp_path)
    live = everything(base)
    assert live["overview"]["counts"]["completed"] == EPOCHS
    gate.touch()
    app.expect_success()

    with history_server(tmp_path / "events", tmp_path / "server.log") as address:
        base = until_listed(address, name)
        assert everything(base) == live
        if window_if_any:
            look_around(window_if_any, base)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A history server with little memory and three applications, one of them large."""
    folder = tmp_path_factory.mktemp("history")
    write_log(folder / "events", "app-orders", checkpoints=150, partitions=400, seed=3)
    write_log(folder / "events", "app-large", checkpoints=KEPT + 100, partitions=2000, seed=3)
    write_log_of_two_queries(folder / "events", "app-two", seed=3)
    with history_server(folder / "events", folder / "server.log", memory="256m") as address:
        yield address


def test_failures_slow_partitions_and_sorting(server: str, window: Browser) -> None:
    base = until_listed(server, "app-orders")
    window.open(f"{base}/checkpoints/")
    shown = latest(window)
    assert shown["Completed checkpoint"][0] == "149"
    assert "EXPIRED" in shown["Failed checkpoint"][-1]
    assert shown["Savepoint"][-1] == "s3://lake/savepoints/before-upgrade"
    assert shown["Restore"][:2] == ["41", "2"]
    picture(window, "overview")
    window.click("#checkpoint-pages a", "History")
    picture(window, "history")
    window.click("#checkpoints-table a", "149")
    assert window.table("#partitions-table")[0][0] == "17", "the slowest comes first"
    assert len(window.table("#partitions-table")) == 100
    picture(window, "details")
    window.click("#partitions-table th a", "Partition")
    assert [row[0] for row in window.table("#partitions-table")][:3] == ["0", "1", "2"]
    window.click("#partitions-table th a", "Partition")
    assert [row[0] for row in window.table("#partitions-table")][:3] == ["399", "398", "397"]
    window.click("#checkpoint-pages a", "Summary")
    picture(window, "summary")
    window.open(f"{base}/checkpoints/details/?id=60")
    assert "503 Slow Down" in window.text("#checkpoint-about tr:nth-child(7) td")
    assert window.errors() == []


def test_a_failed_checkpoint_says_why(server: str) -> None:
    failed = checked(until_listed(server, "app-orders"), "/details/60", "details")
    assert (failed["status"], failed["failure_reason"]) == ("FAILED", "EXPIRED")


def test_many_partitions_and_checkpoints_in_little_memory(server: str) -> None:
    base = until_listed(server, "app-large")
    overview = checked(base, "", "overview")
    assert overview["counts"]["total"] == KEPT + 100
    assert overview["counts"]["completed"] + overview["counts"]["failed"] == KEPT + 100
    assert len(overview["history"]) == KEPT
    subtasks = checked(base, f"/details/{KEPT + 50}/subtasks/1", "subtasks")
    assert subtasks["is_summarised"]
    assert subtasks["num_subtasks"] == 2000
    assert len(subtasks["subtasks"]) == 100
    assert subtasks["summary"]["start_delay"]["p50"] < subtasks["subtasks"][0]["end_to_end_duration"]
    for page in ("", "history/", "summary/", f"details/?id={KEPT + 50}", "json/", "json/latencies"):
        with urllib.request.urlopen(f"{base}/checkpoints/{page}", timeout=60) as answer:
            size = len(answer.read())
        print(f"/checkpoints/{page}: {size} bytes")
        assert size < MOST_BYTES, page


def test_a_page_shows_a_part_of_many_and_says_so(server: str, window: Browser) -> None:
    base = until_listed(server, "app-large")
    window.open(f"{base}/checkpoints/history/")
    assert len(window.table("#checkpoints-table")) == 100
    window.open(f"{base}/checkpoints/details/?id={KEPT + 50}")
    assert any("The slowest 100 of 2,000 partitions" in text for text in window.texts("p"))
    assert window.errors() == []


def test_each_query_has_its_own_pages(server: str, window: Browser) -> None:
    base = until_listed(server, "app-two")
    window.open(f"{base}/checkpoints/")
    assert dict(zip(window.texts("#checkpoint-counts th"), window.texts("#checkpoint-counts td"), strict=True))["Triggered"] == "7"
    window.click("#checkpoint-queries a", "orders")
    assert dict(zip(window.texts("#checkpoint-counts th"), window.texts("#checkpoint-counts td"), strict=True))["Triggered"] == "5"
    window.click("#checkpoint-pages a", "History")
    assert len(window.table("#checkpoints-table")) == 5


def test_each_query_has_its_own_answers(server: str) -> None:
    base = until_listed(server, "app-two")
    assert {q["name"] for q in checked(base, "/queries", "queries")} == {"orders", "invoices"}
    for query in (QUERY_ID, "orders", "file:/data/ckpt/orders"):
        assert checked(base, f"/?query={query}", "overview")["counts"]["total"] == 5
    with pytest.raises(urllib.error.HTTPError) as error:
        get(f"{base}/checkpoints/json/")
    assert "there are 2 queries; add ?query=" in error.value.read().decode()


def test_a_history_server_without_the_jar_shows_all_the_rest(tmp_path: Path) -> None:
    write_log(tmp_path / "events", "app-plain", checkpoints=3, partitions=3, seed=3)
    with history_server(tmp_path / "events", tmp_path / "server.log", jar=False) as address:
        with urllib.request.urlopen(f"{until_listed(address, 'app-plain')}/environment/", timeout=60) as answer:
            page = answer.read().decode()
        tabs = re.findall(r'class="nav-link"[^>]*>([^<]+)<', page)
        assert "Environment" in tabs
        assert "Checkpoints" not in tabs


def test_compaction_keeps_the_newest_checkpoints_and_all_counts(tmp_path: Path) -> None:
    rolling = write_rolling_log(tmp_path / "events", "app-rolling", files=4, checkpoints=KEPT + 400, partitions=3, seed=5)
    rolled = "spark.history.fs.eventLog.rolling"
    small = {f"{rolled}.maxFilesToRetain": "1", f"{rolled}.compaction.score.threshold": "0.0"}
    with history_server(tmp_path / "events", tmp_path / "server.log", conf=small) as address:
        base = until_listed(address, "app-rolling")
        deadline = time.monotonic() + 60
        while not (compacted := list(rolling.glob("*.compact"))) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert compacted, (tmp_path / "server.log").read_text()[-3000:]
        kept = [json.loads(line) for line in compacted[0].read_text().splitlines()]
        epochs = [e["epoch"] for e in kept if e["Event"].endswith(("CheckpointCompleted", "CheckpointAborted"))]
        assert min(epochs) > 0
        assert len(epochs) <= KEPT
        assert [e["Event"] for e in kept if e["Event"].endswith("CheckpointRunStarted")] == ["org.apache.spark.ckpt.CheckpointRunStarted"]
        overview = checked(base, "", "overview")
        assert overview["counts"]["total"] == KEPT + 400
        assert overview["counts"]["completed"] + overview["counts"]["failed"] == KEPT + 400
        assert checked(base, "/queries", "queries")[0]["name"] == "orders"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/details/99999", "checkpoint 99999 is not among those that are kept"),
        ("/details/3/subtasks/7", "checkpoint 3 has no operator 7"),
        ("/nothing", "there is no nothing below /checkpoints/json"),
        ("/?query=nobody", "there is no such query"),
    ],
)
def test_what_is_not_there_is_said(server: str, path: str, says: str) -> None:
    base = until_listed(server, "app-orders")
    with pytest.raises(urllib.error.HTTPError) as error:
        get(f"{base}/checkpoints/json{path}")
    assert error.value.code == 400
    assert says in error.value.read().decode()
