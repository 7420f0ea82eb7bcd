"""What README shows first runs as it stands, and does what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(600)]

README = Path(__file__).resolve().parents[2] / "README.md"
FOR_A_BUSY_MACHINE_S = 100


def test_the_first_example_goes_on_where_it_was_when_its_location_is_gone(tmp_path: Path) -> None:
    lake, digits = tmp_path / "lake", tmp_path / "digits"
    job = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    for shown, meant in (("/tmp/lake", str(lake)), ("/tmp/digits", str(digits)), ("(30)", f"({FOR_A_BUSY_MACHINE_S})")):
        assert job.count(shown) == 1, shown
        job = job.replace(shown, meant)
    first = _batches(_python(tmp_path, "-c", job))
    listed = _list(tmp_path, lake, digits)
    shutil.rmtree(digits)
    second = _batches(_python(tmp_path, "-c", job))
    again = _list(tmp_path, lake, digits)

    assert first[0] == 0
    assert re.search(r"^run-1/chk-\d+ .* COMPLETED, latest$", listed, re.MULTILINE), listed
    # The epoch in which the query was stopped may have shown its batch, and runs again then.
    assert second[0] in (first[-1], first[-1] + 1)
    assert re.search(r"^run-2/chk-\d+ .* COMPLETED, latest$", again, re.MULTILINE), again


def _python(folder: Path, *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return done.stdout


def _list(folder: Path, lake: Path, location: Path) -> str:
    return _python(folder, "-m", "spark_ckpt.cli.main", "list", f"{lake}{location}")


def _batches(printed: str) -> list[int]:
    return [int(number) for number in re.findall(r"^Batch: (\d+)$", printed, re.MULTILINE)]
