"""Makes a virtual environment with the lowest version of every runtime dependency that pyproject.toml allows.

    python tests/lowest.py FOLDER    make it, and print its interpreter

What tests need besides, and PySpark, is taken from the environment of the interpreter that runs this.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lowest() -> list[str]:
    """A pin for each runtime dependency: `boto3==1.36.0`. boto3 is nothing without the botocore of its own version."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    floors = {found.group(1): found.group(2) for text in declared if (found := re.match(r"([\w-]+)>=([\d.]+)", text))}
    assert len(floors) == len(declared), f"a runtime dependency without a floor is among {declared}"
    pins = {name: floor + ".0" * max(0, 2 - floor.count(".")) for name, floor in floors.items()}
    return [f"{name}=={floor}" for name, floor in {**pins, "botocore": pins["boto3"]}.items()]


def make(folder: Path) -> Path:
    """Returns its interpreter."""
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *lowest()], check=True)
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    # Behind its own packages on the path, so that what is pinned comes first.
    (own / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    return python


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
