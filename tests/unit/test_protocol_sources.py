"""Sources that come and go."""

from __future__ import annotations

import pytest

from spark_ckpt.protocol.driver_files import needed, sources_of
from spark_ckpt.protocol.start.sources import same_sources


@pytest.mark.parametrize(
    ("theirs", "mine", "same"),
    [
        (["kafka"], ["kafka"], True),
        (["kafka"], ["kafka", "FileSource"], False),
        (["kafka"], ["rate"], False),
        (["FileSource(a)"], ["FileSource(b)", "kafka(c)"], True),
        (["FileSource(a)"], ["FileSource"], False),
        (["FileSource(a)", "kafka"], ["FileSource(a)"], False),
    ],
)
def test_only_sources_with_names_come_and_go(theirs: list[str], mine: list[str], same: bool) -> None:
    assert same_sources(theirs, mine) is same


@pytest.mark.parametrize("source", ["0", "orders", "orders_2"])
def test_the_log_of_a_source_is_kept_by_its_position_or_its_name(source: str) -> None:
    files = {f"sources/{source}/{n}": b"v1" for n in range(3)}
    assert needed(files, 2) == files
    assert sources_of(files) == files
