"""A hook of mkdocs (mkdocs.yml): what the site has beside `docs/`, and what it must not have.

The repository's own pages (README.md, ...) become pages of the site; other files that pages lead to are copied. What is built loads
nothing from the network.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from documents.links import OWN_PAGES, place_of, rewritten
from documents.network import loaded
from documents.places import ROOT


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in OWN_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    text, wanted = rewritten(markdown, page.file.src_uri, lambda path: (ROOT / path).is_dir())
    for path in wanted:
        if (ROOT / path).is_file() and files.get_file_from_path(place_of(path)) is None:
            files.append(File.generated(config, place_of(path), abs_src_path=str(ROOT / path)))
    return text


def on_post_build(config: MkDocsConfig) -> None:
    site = Path(config.site_dir)
    pages = sorted([*site.rglob("*.html"), *site.rglob("*.css")])
    found = [f"{page.relative_to(site)}: {what}" for page in pages for what in loaded(page.read_text(encoding="utf-8"))]
    if found:
        raise PluginError("the site would load this from the network: " + "; ".join(found[:5]))
