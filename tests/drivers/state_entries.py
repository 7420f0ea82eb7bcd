"""All entries of a checkpoint's state, by operator, store and column family, whatever partition they are in."""

from __future__ import annotations

from collections import defaultdict

from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.state.reading import StateOfCheckpoint
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.opening import opened_stream


def entries(url: str) -> dict[tuple[int, str, str], list[tuple[bytes, bytes]]]:
    """Of the stream, checkpoint or savepoint at `url`: keys and values as they are stored, less the numbers of families, which are each
    partition's own."""
    found: dict[tuple[int, str, str], list[tuple[bytes, bytes]]] = defaultdict(list)
    with opened_stream(url, S3Options()) as (storage, reader), temporary_folder("entries") as folder:
        checkpoint = reader.read(reader.latest())
        state = StateOfCheckpoint(storage, checkpoint)
        stores = {(operator.id, store.name): store for operator in state.operators for store in operator.stores}
        for number, snapshot in enumerate(checkpoint.snapshots):
            name = snapshot.store.operator, snapshot.store.store
            with state.contents(snapshot, folder / str(number)) as contents:
                families = {number.to_bytes(2, "little"): family for family, number in (contents.families or {}).items()}
                for key, value in contents.entries():
                    if stores[name].has_families:
                        found[(*name, families[key[:2]])].append((key[2:], value))
                    else:
                        found[(*name, "")].append((key, value))
    return {name: sorted(values) for name, values in found.items()}
