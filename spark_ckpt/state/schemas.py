"""What a checkpoint says of its operators: their stores, and the schemas of what those hold, in the files that Spark's driver has written.

- `state/<operator>/_metadata/metadata` (v1), `state/<operator>/_metadata/v2/<epoch>` (v2): name of the operator, stores, state variables
- `state/<operator>/0/_metadata/schema` (v1, v2), below the store's name unless that is `default`: one key and one value
- `state/<operator>/_stateSchema/<store>/<epoch>_<unique>` (v3): those of each column family
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.state.spark_types import Struct, parse_struct

DEFAULT = "default"
"""Spark's name of an operator's only store, and of a store's family that has no name of its own."""
_MAX_VALUES = 2_000_000
_MAX_FAMILIES = 30_000
_MAX_OPERATORS = 10_000
_OF_OPERATOR = re.compile(r"state/(\d{1,18})/.", re.ASCII | re.DOTALL)
_EPOCH = re.compile(r"\d{1,18}", re.ASCII)
_NOT_READ = (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
"""What a JSON document raises that is none of Spark's; OverflowError: the number 1e400."""


class KeyForm(Enum):
    """How keys are laid out, so that RocksDB's order serves Spark: Spark's `KeyStateEncoderSpec`."""

    PLAIN = "NoPrefixKeyStateEncoderSpec"
    PREFIX = "PrefixKeyScanStateEncoderSpec"
    RANGE = "RangeKeyScanStateEncoderSpec"


class Variable(Enum):
    """Kinds of state variables of `transformWithState`."""

    VALUE = "ValueState"
    LIST = "ListState"
    MAP = "MapState"
    TIMER = "TimerState"


@dataclass(frozen=True)
class KeyLayout:
    """`prefix`: columns in front, of PREFIX. `ordered`: ordinals of the columns that are ordered, of RANGE."""

    form: KeyForm
    prefix: int = 0
    ordered: tuple[int, ...] = ()


@dataclass(frozen=True)
class Family:
    """What one column family holds, or a store that has none: then its name is `default`.

    `written`: schemas of values by their number, where values say with which they were written (Avro); the newest is `value`.
    """

    name: str
    key: Struct
    value: Struct
    layout: KeyLayout
    variable: Variable | None = None
    written: Mapping[int, Struct] | None = None

    @property
    def is_list(self) -> bool:
        """Whether there are many values under one key."""
        return self.variable is Variable.LIST

    @property
    def is_internal(self) -> bool:
        """Spark's own: counters and indexes of lists, of timers and of what expires."""
        return self.name.startswith("$") and self.variable is not Variable.TIMER


@dataclass(frozen=True)
class Store:
    """One state store of an operator. `has_families`: keys begin with the number of their family."""

    name: str
    partitions: int
    families: tuple[Family, ...]
    has_families: bool


@dataclass(frozen=True)
class Operator:
    """`name` as Spark calls it, `stateStoreSave` for an aggregation, also in real time, where Spark takes the one for the other."""

    id: int
    name: str
    stores: tuple[Store, ...]

    @property
    def has_one_partition(self) -> bool:
        """Whatever the query's number of partitions: a limit, and what has no keys. A session's key has the time of its beginning too."""
        name = self.name.lower()
        least = 1 if "session" in name else 0
        families = [family for store in self.stores for family in store.families]
        without = all(len(family.key.fields) <= least and family.layout.form is KeyForm.PLAIN for family in families)
        return "limit" in name or without


_IN_REAL_TIME = {"StatefulStreamlineAggregate": "stateStoreSave"}

Files = Mapping[str, bytes]
"""The driver's files below `state/`."""


def read_operators(files: Files) -> tuple[Operator, ...]:
    """All operators of a checkpoint. Raises `DamagedError`, and `FormatError` for what a newer Spark has written."""
    of: dict[int, dict[str, bytes]] = {}
    for name, content in files.items():
        if (found := _OF_OPERATOR.match(name)) is not None:
            of.setdefault(int(found.group(1)), {})[name] = content
    if len(of) > _MAX_OPERATORS:
        raise FormatError(f"a checkpoint has files of {len(of)} stateful operators, more than any query; it is damaged or forged")
    return tuple(_operator(its, number) for number, its in sorted(of.items()))


def schema_file(operator: int, store: str) -> str:
    """Of a store without families."""
    return f"state/{operator}/0/{'' if store == DEFAULT else store + '/'}_metadata/schema"


def _operator(files: Files, number: int) -> Operator:
    name, text = _metadata(files, number)
    version, _, body = text.partition(b"\n")
    if version not in (b"v1", b"v2"):
        raise FormatError(f"{name} has the form {version[:20].decode(errors='replace')!r}, known are v1 and v2; take a newer spark-ckpt")
    try:
        document = parse_json(body, _MAX_VALUES)
        properties = parse_json(document.get("operatorPropertiesJson", "{}").encode() or b"{}", _MAX_VALUES)
        variables = {str(v["stateName"]): _variable(v["stateVariableType"], name) for v in properties.get("stateVariables", ())}
        named = [str(store["storeName"]) for store in document["stateStoreInfo"]]
        if len(set(named)) != len(named):
            raise ValueError("it names a store twice")
        stores = tuple(_store(files, number, store, variables) for store in document["stateStoreInfo"])
        kind = str(document["operatorInfo"]["operatorName"])
        return Operator(number, _IN_REAL_TIME.get(kind, kind), stores)
    except _NOT_READ as e:
        raise DamagedError(f"{name} cannot be read ({type(e).__name__}: {e}); it is damaged") from e


def _variable(kind: Any, name: str) -> Variable:
    if kind not in {variable.value for variable in Variable}:
        known = ", ".join(variable.value for variable in Variable)
        raise FormatError(
            f"{name}, of a newer Spark, has a state variable of the kind {kind!r:.60}, "
            f"known are {known}; take a newer spark-ckpt"
        )
    return Variable(kind)


def _metadata(files: Files, number: int) -> tuple[str, bytes]:
    folder = f"state/{number}/_metadata/"
    later = [name.removeprefix(f"{folder}v2/") for name in files if name.startswith(f"{folder}v2/")]
    epochs = [int(epoch) for epoch in later if _EPOCH.fullmatch(epoch)]
    name = f"{folder}v2/{max(epochs)}" if epochs else f"{folder}metadata"
    if name not in files:
        raise DamagedError(f"the checkpoint does not hold {name}, which says what operator {number} keeps; choose another checkpoint")
    return name, files[name]


def _store(files: Files, number: int, document: Mapping[str, Any], variables: Mapping[str, Variable]) -> Store:
    name, partitions = str(document["storeName"]), int(document["numPartitions"])
    paths = document.get("stateSchemaFilePaths")
    if paths:
        # Spark notes whole paths; a stream may have moved, so that it is the last of their names that counts.
        names = [f"state/{number}/_stateSchema/{name}/{str(path).rpartition('/')[2]}" for path in paths]
        once = list(dict.fromkeys(reversed(names)))[::-1]  # the last one counts, as often as it is named
        return Store(name, partitions, _families(files, once, variables), True)
    schema = schema_file(number, name)
    key, value = _pair(files, schema)
    prefix = int(document["numColsPrefixKey"])
    layout = KeyLayout(KeyForm.PREFIX, prefix) if prefix else KeyLayout(KeyForm.PLAIN)
    _check_layout(layout, key, schema)
    return Store(name, partitions, (Family(DEFAULT, key, value, layout),), False)


class _Input:
    """A `DataInputStream`."""

    def __init__(self, files: Files, name: str) -> None:
        if name not in files:
            raise DamagedError(f"the checkpoint does not hold {name}, which says what a state store holds; choose another checkpoint")
        self._data, self._at, self.name = files[name], 0, name

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise DamagedError(f"{self.name} ends early; it is damaged")
        found = self._data[self._at : end]
        self._at = end
        return found

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def utf(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "big"))

    def chunks(self) -> bytes:
        return b"".join(self.utf() for _ in range(self.number()))

    def schema(self, text: bytes) -> Struct:
        try:
            return parse_struct(parse_json(text, _MAX_VALUES))
        except (ValueError, RecursionError) as e:
            raise DamagedError(f"{self.name} holds no schema ({e}); it is damaged") from e

    def version(self) -> str:
        return self.utf().decode(errors="replace")

    def refuse(self, version: str) -> FormatError:
        return FormatError(f"{self.name} has the form {version!r:.40}, known are v1, v2 and v3; take a newer spark-ckpt")


def _pair(files: Files, name: str) -> tuple[Struct, Struct]:
    source = _Input(files, name)
    version = source.version()
    if version not in ("v1", "v2"):
        raise source.refuse(version)
    key, value = (source.utf() if version == "v1" else source.chunks() for _ in range(2))
    return source.schema(key), source.schema(value)


def _families(files: Files, names: Sequence[str], variables: Mapping[str, Variable]) -> tuple[Family, ...]:
    """Of the newest file; the older ones have schemas with which values were written before the schema evolved."""
    written: dict[str, dict[int, Struct]] = {}
    newest: dict[str, Family] = {}
    for name in names:
        newest = {}
        for family, number in _family_rows(_Input(files, name)):
            known = written.setdefault(family.name, {})
            known[number] = family.value
            variable = variables.get(family.name)
            _check_key(variable, family, name)
            newest[family.name] = Family(family.name, family.key, family.value, family.layout, variable, known)
    return tuple(newest.values())


def _check_key(variable: Variable | None, family: Family, file: str) -> None:
    """A map's key has the user's in it, a timer's the time, as the columns that `read_state` gives."""
    needed = {Variable.MAP: ("key", "userKey"), Variable.TIMER: ("key", "expiryTimestampMs")}.get(variable, ()) if variable else ()
    missing = [name for name in needed if name not in {field.name for field in family.key.fields}]
    if variable and missing:
        raise DamagedError(f"{file} says that the keys of {family.name}, a {variable.value}, have no {missing[0]}; it is damaged")


def _check_layout(layout: KeyLayout, key: Struct, file: str) -> None:
    """Columns that stand in front, or are ordered, are columns of the key."""
    count = len(key.fields)
    right = {
        KeyForm.PLAIN: True,
        KeyForm.PREFIX: 0 < layout.prefix < count,
        KeyForm.RANGE: 0 < len(set(layout.ordered)) == len(layout.ordered) and all(0 <= n < count for n in layout.ordered),
    }
    if not right[layout.form]:
        raise DamagedError(f"{file} lays a key of {count} columns out as {layout}, which cannot be; it is damaged")


def _family_rows(source: _Input) -> Iterator[tuple[Family, int]]:
    """Each with the number of its value's schema."""
    version = source.version()
    if version != "v3":
        raise source.refuse(version)
    count = source.number()
    if not 0 <= count <= _MAX_FAMILIES:
        raise DamagedError(f"a state schema file names {count} column families; it is damaged")
    for _ in range(count):
        name = source.utf().decode(errors="replace")
        source.number(2)
        key = source.schema(source.chunks())
        number = source.number(2)
        value = source.schema(source.chunks())
        layout = _layout(source.chunks())
        _check_layout(layout, key, source.name)
        source.chunks()  # the keys of a map state, which are in `key` too
        yield Family(name, key, value, layout), number


def _layout(text: bytes) -> KeyLayout:
    try:
        document = parse_json(text, 1000)
        kind = str(document["keyStateEncoderType"])
        if kind not in {form.value for form in KeyForm}:
            raise FormatError(f"keys of a column family are laid out as {kind!r:.60}, unknown to this spark-ckpt; take a newer one")
        ordered = tuple(int(ordinal) for ordinal in document.get("orderingOrdinals", ()))
        return KeyLayout(KeyForm(kind), int(document.get("numColsPrefixKey", 0)), ordered)
    except _NOT_READ as e:
        raise DamagedError(f"a state schema file does not say how keys are laid out ({type(e).__name__}: {e}); it is damaged") from e
