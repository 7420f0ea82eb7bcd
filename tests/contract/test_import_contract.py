"""A stock checkpoint in any storage becomes a savepoint in any storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spark_ckpt.stock.importing import import_checkpoint
from spark_ckpt.storage import Storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.verify import Verifier
from tests.drivers.stock_location import StockLocation


def test_a_savepoint_out_of_a_stock_checkpoint(open_below: Callable[[str], Storage], tmp_path: Path) -> None:
    at = StockLocation(tmp_path / "stock", format=2).begin()
    for batch in range(3):
        at.batch(batch, full=batch == 1)
    at.plan(3)
    location, target = open_below("stock/orders"), open_below("lake/savepoints/import-2")
    for name, (content, _) in at.contents().items():
        location.put(name, content)
    before = [(found.key, found.modified_ms) for found in location.list("")]
    made = import_checkpoint(location, target)
    assert [(found.key, found.modified_ms) for found in location.list("")] == before
    assert RestorePath.at(target.url).read(target) == made
    assert not Verifier(target).verify(made).problems
    assert import_checkpoint(location, target) == made
