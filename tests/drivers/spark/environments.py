"""Interpreters that are not the one of the tests."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def linked_environment(folder: Path) -> Path:
    """A virtual environment with what the one of this test has, and no name in common with it."""
    venv.create(folder, with_pip=False, symlinks=True)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{_ROOT}\n")
    return folder
