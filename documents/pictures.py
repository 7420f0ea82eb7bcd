"""`python -m documents.pictures`: what `spark-ckpt state` prints, as pictures for docs/state.md.

They are of streams that tests keep (`tests/stored`), so what they show is what the command says today.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

import spark_ckpt
from documents.places import IMAGES, ROOT
from spark_ckpt.cli.main import run

_STORED = ROOT / "tests" / "stored" / "states"
_SHOWN_AS = "file:///lake"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_WIDTH = 110
"""Columns."""


def printed() -> Iterator[tuple[str, str, str]]:
    """Name of the picture, the command, and what it prints."""
    with TemporaryDirectory() as folder:
        lake = Path(folder).resolve()
        for query in ("transform", "sessions"):
            shutil.copytree(_STORED / query, lake / query)
        here = lake.as_uri()
        stream, target = f"{here}/sessions", f"{here}/saved"
        edited = spark_ckpt.drop_keys(stream, 0, lambda keys: pc.equal(keys.column(0), "k1"), target=target, name="less")
        for name, arguments in (
            ("state", [f"{here}/transform", "--deep"]),
            ("state-changes", [edited, "--since", stream]),
        ):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                if (status := run(["state", *arguments])) != 0:
                    raise RuntimeError(f"state {arguments} ended with {status}")
            yield name, f"spark-ckpt state {' '.join(arguments)}".replace(here, _SHOWN_AS), said.getvalue().replace(here, _SHOWN_AS)


def main() -> None:
    for name, command, text in printed():
        console = Console(record=True, width=_WIDTH, file=io.StringIO())
        console.print(Text(f"$ {command}\n\n{text.rstrip()}"))
        picture = console.export_svg(title="spark-ckpt", unique_id=name)
        # Its fonts would come over the network, and the site is to be read without one.
        (IMAGES / f"{name}.svg").write_text(_FONTS.sub("", picture), encoding="utf-8")


if __name__ == "__main__":
    main()
