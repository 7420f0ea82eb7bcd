"""What arrives damaged is read a second time: bytes can be lost on the way. What is damaged then is damaged for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spark_ckpt.errors import DamagedError

T = TypeVar("T")


def read_twice(read: Callable[[], T]) -> T:
    """What it reads, or what it reads the second time. `read` raises `DamagedError` for damage; the second one is not caught."""
    try:
        return read()
    except DamagedError:
        return read()
