"""What tests of the clouds' client have in common."""

from __future__ import annotations

import os

import pytest

from spark_ckpt.storage.cloud import CloudLimits

MIB = 1 << 20
QUICK = CloudLimits(
    single_put_max=6 * MIB, part_size=5 * MIB, page_size=3, patience_s=1.0, first_contact_s=0.3, backoff_s=0.01, read_s=5.0, part_attempts=4
)


def without_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "AZURE_", "AZURITE_"))]:
        monkeypatch.delenv(name)
