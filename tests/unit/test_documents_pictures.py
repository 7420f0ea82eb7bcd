"""Pictures of docs/state.md show what the command prints today."""

from __future__ import annotations

import html
import re

from documents.pictures import printed
from documents.places import IMAGES


def shown(picture: str) -> list[str]:
    """Lines of text, top to bottom."""
    parts = re.findall(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture)
    lines: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in parts:
        lines.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    return ["".join(text for _, text in sorted(lines[y])).rstrip() for y in sorted(lines)]


def test_they_show_what_is_printed() -> None:
    for name, command, text in printed():
        picture = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
        lines = [line for line in shown(picture) if line]
        assert lines[-len([one for one in text.splitlines() if one]) :] == [line for line in text.splitlines() if line], (
            f"docs/images/{name}.svg is stale: run `python -m documents.pictures`"
        )
        assert command.removeprefix("spark-ckpt ")[:40] in "".join(lines)
        assert "url(http" not in picture, "the site is read without a network"
        assert "@import" not in picture
