"""`spark_ckpt.stream`: what a notebook shows of a stream is what `spark-ckpt list` prints."""

from __future__ import annotations

import subprocess
import venv
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

import spark_ckpt
from spark_ckpt.api.stream import Stream, stream
from spark_ckpt.errors import ConfigError, ObjectMissingError
from tests.drivers.command_line import call
from tests.stored.earlier import place


@pytest.fixture
def url(tmp_path: Path) -> str:
    place("1", tmp_path / "stream")
    return f"file://{tmp_path}/stream"


class Cells(HTMLParser):
    """The texts of what a notebook gets, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_it_says_what_list_says(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = spark_ckpt.stream(url)
    status, told = call(capsys, "list", url)
    assert status == 0
    assert [(c.name, c.url, c.epoch, c.stores, c.size, c.status, c.latest, c.retained) for c in found.checkpoints] == [
        (c["checkpoint"], c["path"], c["epoch"], c["stores"], c["size"], c["status"], c["latest"], c["retained"])
        for c in told["checkpoints"]
    ]
    assert found.latest is not None
    assert found.latest.name == told["latest"]
    cells = Cells(found._repr_html_())
    for one in found.checkpoints:
        assert set(one.row) <= set(cells.texts)
        assert one.name in repr(found)
    assert found.owner in cells.texts
    assert found.problem is None


def test_it_says_how_far_the_latest_is_behind(url: str) -> None:
    latest = spark_ckpt.stream(url).latest
    assert latest is not None
    assert latest.time is not None
    found = stream(url, clock=lambda: latest.time.timestamp() + 90 if latest.time else 0.0)
    assert found.age_s == pytest.approx(90)
    assert "was triggered 90 s ago; 1 epoch was planned past it" in repr(found)
    Path(latest.url.removeprefix("file://"), "_metadata").unlink()
    older = spark_ckpt.stream(url)
    assert older.latest is not None
    assert older.latest.epoch < latest.epoch
    assert older.epochs_past_latest == 1 + latest.epoch - older.latest.epoch
    assert "2 epochs were planned past it" in repr(older)


def test_a_checkpoint_that_is_damaged_is_there_and_says_so(url: str) -> None:
    latest = spark_ckpt.stream(url).latest
    assert latest is not None
    Path(latest.url.removeprefix("file://"), "_metadata").write_bytes(b"<b>")
    last = spark_ckpt.stream(url).checkpoints[-1]
    assert (last.name, last.status, last.size, last.time, last.latest) == (latest.name, "DAMAGED", None, None, False)
    assert last.error is not None
    assert "_metadata" in last.error


def test_a_damaged_log_is_told(url: str) -> None:
    for entry in Path(url.removeprefix("file://"), "log").iterdir():
        entry.unlink()
    found = spark_ckpt.stream(url)
    assert found.problem is not None
    assert found.problem in Cells(found._repr_html_()).texts
    assert found.epochs_past_latest is None


def test_what_comes_out_of_a_storage_is_no_html_and_steers_no_terminal(url: str) -> None:
    read = spark_ckpt.stream(url)
    cells = ("<i>run</i>", "1", "\x1b[2J", "2", "3", "4", "5", "<i>ok</i>")
    forged = replace(read.checkpoints[0], row=cells)
    found = replace(read, checkpoints=(forged,), owner="<script>x</script>\x1b[2J", problem="<img src=x>")
    shown = Cells(found._repr_html_())
    assert shown.tags == {"div", "table", "thead", "tbody", "tr", "th", "td", "p"}
    assert {"<script>x</script>\\x1b[2J", "<i>run</i>", "\\x1b[2J", "<i>ok</i>"} <= set(shown.texts)
    assert "\x1b" not in repr(found)


def test_a_long_list_is_shown_in_part(url: str) -> None:
    found = spark_ckpt.stream(url)
    many = replace(found, checkpoints=found.checkpoints[:1] * 30)
    assert repr(many).splitlines()[21] == "10 older ones are not shown"
    assert many._repr_html_().count("<tr>") == 21


def test_nothing_has_completed() -> None:
    found = Stream("file:///x", (), None, None, None, datetime.now(UTC))
    assert (repr(found), found.latest, found.age_s) == ("the stream at file:///x has no completed checkpoint", None, None)
    assert "<table>" not in found._repr_html_()


def test_a_savepoint_is_a_stream_of_one(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = spark_ckpt.transform_state(url, 0, lambda batch: batch)
    found = spark_ckpt.stream(made)
    assert [c.url for c in found.checkpoints] == [made]
    assert call(capsys, "list", made)[0] == 0


def test_an_interpreter_without_what_it_takes_is_told(tmp_path: Path) -> None:
    """One with this package and nothing else."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    root = Path(spark_ckpt.__file__).parents[1]
    code = "import spark_ckpt\ntry:\n    spark_ckpt.read_state\nexcept spark_ckpt.ConfigError as e:\n    print(e)"
    command = [str(tmp_path / "bare" / "bin" / "python"), "-c", code]
    ran = subprocess.run(command, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=True)
    assert "bare/bin/python lacks" in ran.stdout
    assert "install spark-ckpt with its dependencies" in ran.stdout


def test_where_nothing_is_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(ObjectMissingError, match="there is no stream at"):
        spark_ckpt.stream(tmp_path)
    with pytest.raises(ConfigError, match="the stream's URL"):
        spark_ckpt.stream(7)  # type: ignore[arg-type]
