"""Links of pages that are read in the repository, as they are on the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

OWN_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Path in the repository -> page of the site; what lies in docs/ keeps its name."""
COPIES = "repository"
"""Folder of the site with other files that pages lead to."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_REMOTE = re.compile(r"[a-z]+:", re.IGNORECASE)


def source_of(page: str) -> str:
    """Path in the repository of a page of the site."""
    return next((path for path, own in OWN_PAGES.items() if own == page), f"docs/{page}")


def place_of(path: str) -> str:
    """Path in the site of a file of the repository."""
    if path in OWN_PAGES:
        return OWN_PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{COPIES}/{path}"


def rewritten(markdown: str, page: str, is_folder: Callable[[str], bool]) -> tuple[str, list[str]]:
    """The page with its links as they are on the site, and the files of the repository that it leads to (neither docs/ nor own pages).

    A link to a folder becomes its text: the site has none. `is_folder` is asked with paths in the repository.
    """
    source, wanted = source_of(page), []

    def led(found: re.Match[str]) -> str:
        image, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        if _REMOTE.match(target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if is_folder(path):
            return text
        place = place_of(path)
        if place.startswith(f"{COPIES}/"):
            wanted.append(path)
        return f"{image}[{text}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{anchor})"

    return _LINK.sub(led, markdown), wanted
