"""Which state of a checkpoint goes to which operator of a query that has changed.

Spark numbers stateful operators as it plans them, so that one more or less in a query shifts the numbers of others. Here they are told
apart by what they are, which Spark's own files say: kind, keys, and where that leaves a choice the values that they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

OPERATORS_OPTION = "spark.ckpt.restore.operators"
ALLOW_OPTION = "spark.ckpt.restore.allowNonRestoredState"
_UNNAMED = "_groupingexpression"
"""Spark's name of every key that is an expression, whatever its alias."""


@dataclass(frozen=True)
class Operator:
    """`number` and `kind` as Spark has them (`stateStoreSave` is an aggregation). `keys`: columns with their types, `types`: those alone;
    `values` says what it holds under a key, `value_types` the same without the names of columns. `stores`: the names of its state stores,
    in Spark's order."""

    number: int
    kind: str
    keys: str
    types: str
    values: str
    stores: tuple[str, ...] = ()
    value_types: str = ""

    def __str__(self) -> str:
        return f"{self.number} {self.kind}({self.keys})"


@dataclass(frozen=True)
class OperatorChoice:
    """What a person says of it. `chosen`: operator of the query -> operator of the checkpoint. `may_drop`: state that no operator takes."""

    chosen: Mapping[int, int] = field(default_factory=dict)
    may_drop: bool = False


@dataclass(frozen=True)
class Matched:
    """`kept`: operator of the query -> operator of the checkpoint whose state it takes. `new` begin empty, the state of `gone` is dropped.

    `problems`: why it cannot be so.
    """

    kept: Mapping[int, int]
    new: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.new or self.gone) or any(mine != theirs for mine, theirs in self.kept.items())


def same_for_spark(mine: Sequence[Operator], theirs: Sequence[Operator]) -> bool:
    """Whether Spark itself takes the one for the other, and is right: it compares numbers, kinds and types, not the names of columns.
    Where an operator is to be found under another number, by its names, it is not one that has only been renamed."""
    if [(o.number, o.kind, o.types) for o in mine] != [(o.number, o.kind, o.types) for o in theirs]:
        return False
    for signature in (_all_of_it, _keys_of_it):
        old = [signature(o) for o in theirs]
        if any(signature(o) in old and signature(o) != was for o, was in zip(mine, old, strict=True)):
            return False
    return True


def replaced(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether what the two jobs say of their operators (`Job.operators`) differs on both sides: one may have come in the place of
    another."""
    return bool(set(mine) - set(theirs)) and bool(set(theirs) - set(mine))


def match(mine: Sequence[Operator], theirs: Sequence[Operator], choice: OperatorChoice, doubtful: bool = False) -> Matched:
    """The query's operators and the checkpoint's. First what a person has chosen; then those that are alike in everything; then those of
    one kind with the same keys.

    Rule: of several that are alike nobody guesses. Their order decides only where it is the same on both sides.

    Rule: what Spark's own comparison would let pass, values of the same types under other names, is no pair: a sum is no maximum.

    Rule: an expression has no name in Spark's files, so where operators may have been `replaced` (`doubtful`), nobody guesses that it is
    still the same one.
    """
    kept, problems = _chosen(mine, theirs, choice)
    for signature in (_all_of_it, _keys_of_it):
        taken = set(kept.values())
        found, unclear = _alike([o for o in mine if o.number not in kept], [o for o in theirs if o.number not in taken], signature)
        kept.update({to: given for to, given in found.items() if not _other_names(mine, theirs, to, given)})
        if unclear:
            return Matched(dict(sorted(kept.items())), problems=(*problems, *unclear))
    if doubtful:
        problems += [_unnamed(o, kept[o.number]) for o in mine if o.number in kept.keys() - choice.chosen.keys() and _UNNAMED in o.keys]
    taken = set(kept.values())
    new = tuple(o.number for o in mine if o.number not in kept)
    gone = [o for o in theirs if o.number not in taken]
    if not problems and not choice.may_drop:
        problems += [_left_over(o, mine, new) for o in gone]
    return Matched(dict(sorted(kept.items())), new, tuple(o.number for o in gone), tuple(problems))


def _all_of_it(operator: Operator) -> tuple[str, ...]:
    return (operator.kind, operator.keys, operator.values, *operator.stores)


def _keys_of_it(operator: Operator) -> tuple[str, ...]:
    return (operator.kind, operator.keys)


def _other_names(mine: Sequence[Operator], theirs: Sequence[Operator], to: int, given: int) -> bool:
    a, b = (next(o for o in side if o.number == number) for side, number in ((mine, to), (theirs, given)))
    return a.values != b.values and a.value_types == b.value_types


def _chosen(mine: Sequence[Operator], theirs: Sequence[Operator], choice: OperatorChoice) -> tuple[dict[int, int], list[str]]:
    by_number, old = {o.number: o for o in mine}, {o.number: o for o in theirs}
    kept: dict[int, int] = {}
    problems = []
    for to, given in sorted(choice.chosen.items()):
        pair = f"{OPERATORS_OPTION} has {to}:{given}, but"
        if to not in by_number:
            problems.append(f"{pair} the query's operators are {listed(mine)}")
        elif given not in old:
            problems.append(f"{pair} the checkpoint's operators are {listed(theirs)}")
        elif by_number[to].kind != old[given].kind:
            problems.append(f"{pair} the query's {by_number[to]} cannot take the state of another kind, the checkpoint's {old[given]}")
        else:
            kept[to] = given
    return kept, problems


def _alike(
    mine: Sequence[Operator], theirs: Sequence[Operator], signature: Callable[[Operator], tuple[str, ...]]
) -> tuple[dict[int, int], list[str]]:
    """Pairs of one signature, and why there is a choice."""
    new, old = ([(signature(o), o) for o in side] for side in (mine, theirs))
    both = {s for s, _ in new} & {s for s, _ in old}
    new, old = ([(s, o) for s, o in side if s in both] for side in (new, old))
    in_order = [s for s, _ in new] == [s for s, _ in old]
    kept, problems = {}, []
    for one in sorted(both):
        to, given = ([o for s, o in side if s == one] for side in (new, old))
        if len(to) == len(given) == 1 or (len(to) == len(given) and in_order):
            kept.update({a.number: b.number for a, b in zip(to, given, strict=True)})
        else:
            problems.append(
                f"the query's {listed(to)} and the checkpoint's {listed(given)} are alike, and it cannot be said which goes on from "
                f"which; say so with {OPERATORS_OPTION}=<operator of the query>:<operator of the checkpoint>,…"
            )
    return kept, problems


def _unnamed(operator: Operator, given: int) -> str:
    return (
        f"a key of the query's {operator} is an expression, of which Spark's files do not say which one, so it cannot be said whether it "
        f"goes on from the checkpoint's {given}; if it does, say so with {OPERATORS_OPTION}={operator.number}:{given}. A column that is "
        "made before the groupBy, with withColumn, has a name"
    )


def _left_over(gone: Operator, mine: Sequence[Operator], new: Collection[int]) -> str:
    """`new`: numbers of those that go on from nothing."""
    alike = [f"{OPERATORS_OPTION}={o.number}:{gone.number}" for o in mine if o.number in new and o.kind == gone.kind]
    by_name = f", or say which operator goes on from it with {' or '.join(alike)}" if alike else ""
    return (
        f"no operator of the query takes the state of the checkpoint's {gone}; the query has {listed(mine)}. Set {ALLOW_OPTION}=true to "
        f"drop that state{by_name}"
    )


def listed(operators: Sequence[Operator]) -> str:
    """For people."""
    return ", ".join(map(str, operators)) or "none"
