"""How large a `_metadata` can be: the same for who writes it and who reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MetadataLimits:
    """Sizes in bytes. `file`: of the whole. `document`: of its JSON document. `files`: of the small files of the driver that are in the
    document, together, before they are compressed and written in base64. `rows`: how many handles. `values`: of the document's
    JSON, of which each may be a hundred bytes in memory."""

    file: int = 512 * 1024 * 1024
    document: int = 64 * 1024 * 1024
    files: int = 64 * 1024 * 1024
    rows: int = 5_000_000
    values: int = 8_000_000


LIMITS = MetadataLimits()
