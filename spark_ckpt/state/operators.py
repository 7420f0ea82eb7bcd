"""What the operators of a checkpoint, or of a query that Spark has planned, are (`protocol/operators.py`): out of Spark's own files."""

from __future__ import annotations

from spark_ckpt.model import Checkpoint, FileHandle
from spark_ckpt.protocol.operators import Operator
from spark_ckpt.state.schemas import Family, Files, Variable, read_operators
from spark_ckpt.state.schemas import Operator as Described
from spark_ckpt.state.spark_types import Struct, to_text
from spark_ckpt.storage import Storage
from spark_ckpt.stored.ranges import read


def state_files(storage: Storage, checkpoint: Checkpoint) -> dict[str, bytes]:
    """A checkpoint's, those included that are objects of their own in its storage. Raises `DamagedError`, `ObjectMissingError`,
    `StorageError`."""
    files = {}
    for name, content in checkpoint.files.items():
        if not name.startswith("state/"):
            continue
        if isinstance(content, FileHandle):
            (one,) = read(storage, [content.whole(name)])
            if one.damage is not None:
                raise one.damage
            files[name] = bytes(one.data)
        else:
            files[name] = content
    return files


def describe(files: Files) -> tuple[Operator, ...]:
    """By number. Raises `DamagedError`, and `FormatError` for what a newer Spark has written."""
    return tuple(description(one) for one in read_operators(files))


def description(described: Described) -> Operator:
    families = [(store.name, family) for store in described.stores for family in store.families]
    keys = min((_grouping(family) for _, family in families if not family.is_internal), key=lambda key: len(key.fields), default=Struct())
    values, value_types = (
        "; ".join(sorted(f"{store}/{family.name}: {to_text(family.value, names)}" for store, family in families)) for names in (True, False)
    )
    return Operator(
        described.id,
        described.name,
        ", ".join(f"{field.name} {to_text(field.type)}" for field in keys.fields),
        ", ".join(to_text(field.type) for field in keys.fields),
        values,
        tuple(store.name for store in described.stores),
        value_types,
    )


def _grouping(family: Family) -> Struct:
    """The key that rows are grouped by: a map's has its own key beside it, a timer's the time."""
    first = family.key.fields[0].type if family.key.fields else None
    nested = family.variable in (Variable.MAP, Variable.TIMER) and isinstance(first, Struct)
    return first if nested and isinstance(first, Struct) else family.key

