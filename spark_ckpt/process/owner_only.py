"""Files and folders on the local disk that hold state: nobody but their owner reads them, whatever the umask."""

from __future__ import annotations

import os
from pathlib import Path

FILE, FOLDER = 0o600, 0o700


def opener(path: str, flags: int) -> int:
    """For `open`: a file that it makes is the owner's alone."""
    return os.open(path, flags, FILE)


def make_last(folder: Path) -> None:
    """Make it. One above it that is gone has gone with its owner, and is not made again: nobody would remove it. Raises OSError."""
    folder.mkdir(FOLDER, exist_ok=True)


def make_folder(folder: Path) -> None:
    """Make it, and the folders above it that are not there. Raises OSError."""
    try:
        folder.mkdir(FOLDER, exist_ok=True)
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(FOLDER, exist_ok=True)
