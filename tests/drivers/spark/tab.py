"""The Checkpoints tab, as a test asks for it."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import jsonschema

from tests.drivers.spark.browser import Browser

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "checkpoints.schema.json").read_text())


PICTURES = os.environ.get("SPARK_CKPT_PICTURES")


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


def text(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def checked(base: str, path: str, shape: str) -> Any:
    """The JSON at `/checkpoints/json…`, which is as the schema says."""
    found = get(f"{base}/checkpoints/json{path}")
    jsonschema.validate(found, {"$ref": f"#/$defs/{shape}", "$defs": SCHEMA["$defs"]})
    return found


def picture(window: Browser, name: str, folder: Path | None = None) -> None:
    """In the picture, the test's own folder reads /data."""
    if PICTURES:
        script = "document.body.innerHTML = document.body.innerHTML.replaceAll(arguments[0], '/data')"
        if folder is not None:
            window.run(script, str(folder))
        window.screenshot(Path(PICTURES) / f"{name}.png")
