"""The bytes of `_metadata` (docs/format.md)."""
