"""Which state goes to which operator of a query that has changed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.protocol.operators import Matched, Operator, OperatorChoice, match, replaced, same_for_spark
from spark_ckpt.state.operators import describe
from tests.drivers.planned_operators import a_count, a_deduplication, a_total, operator_files

NOTHING = OperatorChoice()


def some(*kinds: str) -> list[Operator]:
    """`a.x.1`: kind, key, values."""
    parts = [(*text.split("."), "", "")[:3] for text in kinds]
    return [
        Operator(number, kind, f"{key} string", "string", values, value_types=values) for number, (kind, key, values) in enumerate(parts)
    ]


@pytest.mark.parametrize(
    ("mine", "theirs", "kept", "new", "gone"),
    [
        (["sum.k"], ["sum.k"], {0: 0}, (), ()),
        (["dedupe.id", "sum.k"], ["sum.k"], {1: 0}, (0,), ()),
        (["sum.k"], ["dedupe.id", "sum.k"], {0: 1}, (), (0,)),
        (["join.x", "sum.k"], ["sum.k", "join.x"], {0: 1, 1: 0}, (), ()),
        (["sum.k", "sum.k"], ["sum.k", "sum.k"], {0: 0, 1: 1}, (), ()),
        (["dedupe.id", "sum.k", "sum.k"], ["sum.k", "sum.k"], {1: 0, 2: 1}, (0,), ()),
        (["sum.k.b", "sum.k.a"], ["sum.k.a", "sum.k.b"], {0: 1, 1: 0}, (), ()),
        (["sum.k.a", "sum.k.c"], ["sum.k.a", "sum.k.b"], {0: 0, 1: 1}, (), ()),
        (["sum.k.a", "sum.k.b"], ["sum.k.b"], {1: 0}, (0,), ()),
        ([], ["sum.k"], {}, (), (0,)),
        (["sum.k"], [], {}, (0,), ()),
    ],
)
def test_operators_are_matched_by_what_they_are(
    mine: Sequence[str], theirs: Sequence[str], kept: dict[int, int], new: tuple[int, ...], gone: tuple[int, ...]
) -> None:
    assert match(some(*mine), some(*theirs), OperatorChoice(may_drop=True)) == Matched(kept, new, gone)
    problems = match(some(*mine), some(*theirs), NOTHING).problems
    assert len(problems) == len(gone), "without the option nothing is dropped"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (["sum.k", "sum.k"], ["sum.k"]),
        (["sum.k"], ["sum.k", "sum.k"]),
        (["sum.k", "dedupe.id", "sum.k"], ["sum.k", "sum.k", "dedupe.id"]),
        (["sum.k.a", "sum.k.b"], ["sum.k.c"]),
    ],
)
def test_of_several_that_are_alike_nobody_guesses(mine: Sequence[str], theirs: Sequence[str]) -> None:
    (problem,) = match(some(*mine), some(*theirs), OperatorChoice(may_drop=True)).problems
    assert "are alike, and it cannot be said which goes on from which; say so with spark.ckpt.restore.operators=" in problem
    chosen = {number: number for number, _ in zip(range(len(mine)), theirs, strict=False) if mine[number][0] == theirs[number][0]}
    assert match(some(*mine), some(*theirs), OperatorChoice(chosen, may_drop=True)).problems == ()


def test_a_person_may_swap_two_of_a_kind() -> None:
    two = some("sum.k", "sum.k")
    assert match(two, two, OperatorChoice({0: 1, 1: 0})) == Matched({0: 1, 1: 0})
    assert match(two, two, OperatorChoice({0: 1})) == Matched({0: 1, 1: 0}), "one is left for the other"


def test_a_person_may_name_a_pair_whose_keys_have_other_names() -> None:
    assert match(some("sum.customer"), some("sum.client"), OperatorChoice({0: 0})) == Matched({0: 0})


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({2: 0}, "has 2:0, but the query's operators are 0 sum(k string), 1 dedupe(id string)"),
        ({0: 3}, "has 0:3, but the checkpoint's operators are 0 sum(k string)"),
        ({1: 0}, "has 1:0, but the query's 1 dedupe(id string) cannot take the state of another kind, the checkpoint's 0 sum(k string)"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(chosen: dict[int, int], words: str) -> None:
    (problem,) = match(some("sum.k", "dedupe.id"), some("sum.k"), OperatorChoice(chosen)).problems
    assert words in problem


def test_state_that_nobody_takes_is_named_with_the_ways_out() -> None:
    (problem,) = match(some("sum.k"), some("sum.k", "dedupe.id"), NOTHING).problems
    assert problem == (
        "no operator of the query takes the state of the checkpoint's 1 dedupe(id string); the query has 0 sum(k string). Set "
        "spark.ckpt.restore.allowNonRestoredState=true to drop that state"
    )
    (problem,) = match(some("sum.k", "dedupe.kept", "dedupe.new"), some("sum.k", "dedupe.id", "dedupe.kept"), NOTHING).problems
    assert problem.endswith("to drop that state, or say which operator goes on from it with spark.ckpt.restore.operators=2:1")
    (problem,) = match(some("sum.k", "dedupe.other", "dedupe.another"), some("sum.k", "dedupe.id"), NOTHING).problems
    pairs = " or ".join(f"spark.ckpt.restore.operators={number}:1" for number in (1, 2))
    assert problem.endswith(f"to drop that state, or say which operator goes on from it with {pairs}")


KINDS = st.sampled_from(["sum.k", "sum.j", "sum.k.a", "sum.k.b", "dedupe.id", "join.x"])


@given(st.lists(KINDS, max_size=6), st.lists(KINDS, max_size=6), st.booleans(), st.data())
def test_no_state_is_used_twice_or_lost_unsaid(mine: list[str], theirs: list[str], may_drop: bool, data: st.DataObject) -> None:
    a, b = some(*mine), some(*theirs)
    numbers = st.integers(0, 6)
    chosen = data.draw(st.dictionaries(numbers, numbers, max_size=2).filter(lambda d: len(set(d.values())) == len(d)))
    found = match(a, b, OperatorChoice(chosen, may_drop))
    assert len(set(found.kept.values())) == len(found.kept)
    for to, given_ in found.kept.items():
        assert a[to].kind == b[given_].kind
        assert to in chosen or a[to].keys == b[given_].keys
    if not found.problems:
        assert sorted([*found.kept, *found.new]) == [o.number for o in a]
        assert sorted([*found.kept.values(), *found.gone]) == [o.number for o in b]
        assert may_drop or not found.gone
        assert all(found.kept[to] == given_ for to, given_ in chosen.items())


@given(st.lists(KINDS, max_size=6))
def test_a_query_that_has_not_changed_goes_on_as_it_is(kinds: list[str]) -> None:
    operators = some(*kinds)
    found = match(operators, operators, NOTHING)
    assert found == Matched({o.number: o.number for o in operators})
    assert not found.changes


@given(st.lists(KINDS, max_size=5), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=3, unique=True))
def test_operators_that_are_put_in_between_leave_the_others_their_state(kinds: list[str], put: list[tuple[int, int]]) -> None:
    theirs = some(*kinds)
    mixed: list[tuple[str, int | None]] = [(kind, number) for number, kind in enumerate(kinds)]
    for at, name in put:
        mixed.insert(min(at, len(mixed)), (f"new{name}.z", None))
    found = match(some(*(kind for kind, _ in mixed)), theirs, NOTHING)
    assert found.problems == ()
    assert found.kept == {number: old for number, (_, old) in enumerate(mixed) if old is not None}


def test_operators_are_described_by_sparks_own_files() -> None:
    total, seen = describe({**a_total(0), **a_deduplication(1)})
    assert (str(total), str(seen)) == ("0 stateStoreSave(key string)", "1 dedupe(id bigint)")
    (count,) = describe(a_count(0))
    assert (count.keys, count.types) == (total.keys, total.types)
    assert count.values != total.values
    assert same_for_spark(describe(a_total(0, "k")), describe(a_total(0)))
    assert not same_for_spark(describe(a_total(1)), describe(a_total(0)))


def test_the_key_of_a_join_is_that_of_its_smallest_store() -> None:
    stores = ("left-keyToNumValues", "right-keyToNumValues")
    (join,) = describe(operator_files(0, "symmetricHashJoin", [("field0", "string")], [("value", "long")], stores))
    assert (join.keys, join.stores) == ("field0 string", stores)


def test_what_is_under_another_number_was_not_renamed() -> None:
    """Spark, which compares types, would give what one has seen to the other."""
    two = describe({**a_deduplication(0, "id"), **a_deduplication(1, "user")})
    assert same_for_spark(describe({**a_deduplication(0, "id"), **a_deduplication(1, "account")}), two)
    assert not same_for_spark(describe({**a_deduplication(0, "user"), **a_deduplication(1, "id")}), two)
    assert not same_for_spark(describe({**a_deduplication(0, "session"), **a_deduplication(1, "id")}), two)
    sums = describe({**a_total(0), **a_count(1)})
    assert not same_for_spark(describe({**a_count(0), **a_total(1)}), sums)


def test_a_count_does_not_go_on_from_a_sum() -> None:
    """Their types are the same, so that Spark would let it pass."""
    mine, theirs = describe({**a_deduplication(0), **a_count(1)}), describe(a_total(0))
    (problem,) = match(mine, theirs, NOTHING).problems
    assert problem.startswith("no operator of the query takes the state of the checkpoint's 0 stateStoreSave(key string)")
    assert match(mine, theirs, OperatorChoice(may_drop=True)) == Matched({}, new=(0, 1), gone=(0,))
    assert match(mine, theirs, OperatorChoice({1: 0})) == Matched({1: 0}, new=(0,))


def test_a_key_that_is_an_expression_has_no_name_that_says_that_it_is_the_same() -> None:
    """Nobody guesses where the groupings of the query are others than those of the checkpoint."""
    mine, theirs = some("sum._groupingexpression", "dedupe.id"), some("sum._groupingexpression")
    assert match(mine, theirs, NOTHING).kept == {0: 0}
    assert not replaced(("aggregate(user)", "deduplicate(id)"), ("aggregate(user)",))
    assert replaced(("aggregate(country)",), ("aggregate(user)",))
    (problem,) = match(mine, theirs, NOTHING, doubtful=True).problems
    assert "0 sum(_groupingexpression string) is an expression" in problem
    assert problem.endswith(
        "say so with spark.ckpt.restore.operators=0:0. A column that is made before the groupBy, with withColumn, has a name"
    )
    assert match(mine, theirs, OperatorChoice({0: 0}), doubtful=True) == Matched({0: 0}, (1,))
    assert match(some("sum.user"), some("sum.user"), NOTHING, doubtful=True).problems == ()
