"""The columns that a state store is to have: those of the same operator in the query as it will be, of which there is a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_ckpt.errors import ConfigError
from spark_ckpt.state.operators import state_files
from spark_ckpt.state.reading import Selected, StateOfCheckpoint, conf_of
from spark_ckpt.state.schemas import Family, schema_file
from spark_ckpt.state.spark_types import to_text


@dataclass(frozen=True)
class OtherColumns:
    """`family`: what the store is to hold. `files`: what Spark's driver has written of it, to take the place of what the checkpoint has."""

    family: Family
    files: Mapping[str, bytes]


def columns_like(state: StateOfCheckpoint, selected: Selected, like: StateOfCheckpoint) -> OtherColumns:
    """Raises `ConfigError` where the operator of that number in `like` is another one: its kind, its key, or the form of its entries."""
    operator = selected.operator
    named = f"operator {operator.id} ({operator.name})"
    if selected.family.variable is not None:
        raise ConfigError(
            f"{named} has state variables, whose columns Spark itself changes with spark.sql.streaming.stateStore.encodingFormat=avro; "
            "leave out `like`"
        )
    if selected.store.has_families:
        raise ConfigError(f"{named} keeps column families, which cannot get other columns here; leave out `like`")
    there = {one.id: one for one in like.operators}
    other = there.get(operator.id)
    if other is None or other.name != operator.name:
        found = ", ".join(f"{one.id} ({one.name})" for one in like.operators) or "none"
        raise ConfigError(f"`like` has no {named}, its operators are {found}; make it with the same query, of which only columns differ")
    chosen = like.select(other.id, selected.store.name)
    if (_key(chosen.family), chosen.store.has_families) != (_key(selected.family), False):
        raise ConfigError(
            f"{named} has the key {to_text(selected.family.key)}, and in `like` {to_text(chosen.family.key)}; state of other keys is made "
            "with write_state"
        )
    if like.encoding != state.encoding or _formats(like) != _formats(state):
        raise ConfigError(f"{named} is written in another form in `like`; run that with the same spark.sql.streaming.stateStore settings")
    name = schema_file(operator.id, selected.store.name)
    only = replace(like.checkpoint, files={name: like.checkpoint.files[name]})
    return OtherColumns(chosen.family, state_files(like.storage, only))


def _formats(state: StateOfCheckpoint) -> dict[str, str]:
    """Of aggregations, joins and others: with another one the same columns lie elsewhere."""
    return {name: value for name, value in conf_of(state.checkpoint).items() if name.lower().endswith("stateformatversion")}


def _key(family: Family) -> tuple[object, ...]:
    """Names and types, and how they lie; whether a column may be null is what the query says."""
    return to_text(family.key), family.layout
