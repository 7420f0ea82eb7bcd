"""What a page of the site would load from the network when it is read."""

from __future__ import annotations

import re

_ELSEWHERE = r"(?:https?:)?//[^\s\"'>)]*"
_LOADED = re.compile(
    rf"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"']?{_ELSEWHERE}"
    rf"|<link\b(?![^>]*\brel=[\"']?(?:canonical|prev|next|edit)\b)[^>]*\bhref=[\"']?{_ELSEWHERE}"
    rf"|(?:@import\s+|url\()\s*[\"']?{_ELSEWHERE}"
    # A diagram of this kind is drawn by a script that the theme takes from the network.
    r"|class=[\"']?mermaid\b"
)


def loaded(page: str) -> list[str]:
    """Of HTML or CSS. Links that somebody has to click are none."""
    return [found[0] for found in _LOADED.finditer(page)]
