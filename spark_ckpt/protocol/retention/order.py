"""Which checkpoints of a stream stay: what a start, and whoever looks from outside, may count on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol.entries import Claim

MANY = 1 << 30
"""Checkpoints: more than there can be."""


def newest_first(claim: Claim, own: Iterable[CheckpointId]) -> list[CheckpointId]:
    """What the claim's run has: its own checkpoints, its origin, what it inherited; damaged or not."""
    origin = [claim.origin] if claim.origin else []
    return list(dict.fromkeys([*sorted(own, reverse=True), *origin, *sorted(claim.inherits, reverse=True)]))


def worth_keeping(order: Iterable[CheckpointId], intact: Collection[CheckpointId], retained: int) -> frozenset[CheckpointId]:
    """Rule: down to as many intact ones as the last run retains. Those that are damaged do not count: where they are all there is, what is
    left is worth a try, though that run may have dropped it. `order` is `newest_first`.
    """
    found: list[CheckpointId] = []
    counted = 0
    for checkpoint in order:
        if counted == retained:
            break
        found.append(checkpoint)
        counted += checkpoint in intact
    return frozenset(found)


def given_up(checkpoints: Iterable[Checkpoint]) -> frozenset[CheckpointId]:
    """What is there though its run had given it up, and which that run deletes: it does not count it among those that it retains."""
    return frozenset(CheckpointId(c.id.run, epoch) for c in checkpoints for epoch in c.given_up)


def sure(claim: Claim, own: Iterable[CheckpointId], going: Collection[CheckpointId] = ()) -> frozenset[CheckpointId]:
    """Rule: what no run deletes that came before a later claim, damaged or not; without what is `going` (`given_up`).

    Such a run may have dropped older ones on the strength of its last append, and delete them after the next claim: asleep, or because the
    answer is late. It may not know of damage, and counts what is damaged when it drops what is past `retained`. What it may still delete
    stays in danger under later claims (`Claim.unsure`).
    """
    return frozenset(newest_first(claim, own)[: claim.retained]).difference(claim.unsure, going)


def choosable(
    claim: Claim, own: Collection[CheckpointId], intact: Collection[CheckpointId], going: Collection[CheckpointId] = ()
) -> frozenset[CheckpointId]:
    """Rule: a person may go back to what nobody deletes, and to what a start goes back to by itself."""
    newest = next((c for c in newest_first(claim, own) if c in intact), None)
    return sure(claim, own, going) | ({newest} if newest is not None else frozenset())


def dropping_nothing(claim: Claim) -> Claim:
    """Rule: a run that has died before it had the copy which it was to begin with has appended nothing, so it deletes nothing, however few
    it was to retain."""
    return replace(claim, retained=MANY)
