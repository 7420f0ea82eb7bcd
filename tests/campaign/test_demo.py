"""What the README shows first: a year of flights, the driver killed, its machine lost, and every row right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(900)]

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def test_the_demo_is_exact() -> None:
    done = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EXACT" in done.stdout
