"""The release check's look into a wheel finds what is wrong with it, and its processes end."""

from __future__ import annotations

import os
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from jvm_shim.sparks import PINNED
from tests.release import ReleaseError, check_content, run

METADATA = "Metadata-Version: 2.4\nName: spark-ckpt\nLicense-Expression: Apache-2.0\nRequires-Dist: pyspark; extra == 'pyspark'\n"
WHOLE = {
    "spark_ckpt/py.typed": "",
    **{f"spark_ckpt/jars/spark-ckpt-{line}.jar": "" for line in PINNED},
    "spark_ckpt-0.1.0.dist-info/METADATA": METADATA,
    "spark_ckpt-0.1.0.dist-info/licenses/LICENSE": "",
}


def wheel(folder: Path, names: dict[str, str]) -> Path:
    path = folder / "spark_ckpt-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in names.items():
            archive.writestr(name, text)
    return path


def test_a_whole_wheel_is_taken(tmp_path: Path) -> None:
    check_content(wheel(tmp_path, WHOLE))


@pytest.mark.parametrize(
    ("without", "more", "why"),
    [
        ("spark_ckpt/jars/spark-ckpt-4.1.jar", {}, "lacks spark_ckpt/jars/spark-ckpt-4.1.jar"),
        ("spark_ckpt-0.1.0.dist-info/licenses/LICENSE", {}, "does not tell its licence"),
        (None, {"spark_ckpt-0.1.0.dist-info/METADATA": METADATA.replace("License", "Lic")}, "does not tell its licence"),
        (None, {"tests/__init__.py": ""}, "has tests beside the package"),
        (None, {"spark_ckpt-0.1.0.dist-info/METADATA": METADATA + "Requires-Dist: pyspark>=4\n"}, "requires a PySpark"),
    ],
)
def test_what_is_wrong_with_a_wheel_is_named(tmp_path: Path, without: str | None, more: dict[str, str], why: str) -> None:
    names = {name: text for name, text in WHOLE.items() if name != without}
    with pytest.raises(ReleaseError, match=why):
        check_content(wheel(tmp_path, {**names, **more}))


def test_what_takes_too_long_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.Popen(['sleep', '300']); open('begun', 'w').close(); subprocess.run(['sleep', '300'])"
    with pytest.raises(ReleaseError, match=r"did not end within 2 s"):
        run(sys.executable, "-c", child, cwd=tmp_path, timeout=2)
    assert (tmp_path / "begun").exists()
    deadline = time.monotonic() + 10
    while left_in(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def left_in(folder: Path) -> list[str]:
    """Process ids of what works there."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(folder):
                found.append(entry.name)
    return found
