"""The command line, as a program calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_ckpt.cli.main import run


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    status = run([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)
