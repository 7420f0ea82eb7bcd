"""A hook of mkdocs (mkdocs.yml): what the site has beside `docs/`, and what it must not have.

The repository's own pages (README.md, ...) become pages of the site. A link that leaves `docs/` leads there, or to a copy of the file
that it names; a link to a folder is only its text. What is built reads nothing from the network.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OWN_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Path in the repository -> page of the site."""
COPIES = "repository"

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_REMOTE = re.compile(r"[a-z]+:", re.IGNORECASE)
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=\"?(?:https?:)?//[^\s\">]*"
    r"|<link\b(?![^>]*rel=\"?(?:canonical|prev|next|edit)\b)[^>]*\bhref=\"?(?:https?:)?//[^\s\">]*"
    r"|class=\"?mermaid\b"  # drawn by a script that the theme takes from the network
    r"|(?:@import|url\()\s*[\"']?(?:https?:)?//[^\s\"')]*"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in OWN_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    source = next((path for path, own in OWN_PAGES.items() if own == here), f"docs/{here}")

    def led(found: re.Match[str]) -> str:
        image, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        if _REMOTE.match(target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (ROOT / path).is_dir():
            return text
        return f"{image}[{text}]({posixpath.relpath(_on_the_site(path, config, files), posixpath.dirname(here) or '.')}{anchor})"

    return _LINK.sub(led, markdown)


def _on_the_site(path: str, config: MkDocsConfig, files: Files) -> str:
    if path in OWN_PAGES:
        return OWN_PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    copy = f"{COPIES}/{path}"
    if (ROOT / path).is_file() and files.get_file_from_path(copy) is None:
        files.append(File.generated(config, copy, abs_src_path=str(ROOT / path)))
    return copy


def on_post_build(config: MkDocsConfig) -> None:
    site = Path(config.site_dir)
    pages = sorted([*site.rglob("*.html"), *site.rglob("*.css")])
    found = [f"{page.relative_to(site)}: {hit[0]}" for page in pages for hit in _LOADED.finditer(page.read_text(encoding="utf-8"))]
    if found:
        raise PluginError("the site would load this from the network: " + "; ".join(found[:5]))
