"""The hooks of a query: their states are acknowledgements that a checkpoint waits for, and they are told what became of it (Flink:
`MasterHooks`, `CheckpointListener`)."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction


class Hooks:
    """`names`: of the hooks that the query was started with."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def declined(self, epoch: int, given: ev.HookStates) -> str:
        """Rule: without the state of each hook there is no checkpoint of the epoch. Why that is so; empty: all are there."""
        if given.declined:
            return given.declined
        silent = [name for name in self._names if name not in given.states]
        return f"the hook '{silent[0]}' gave no state at the end of epoch {epoch}" if silent else ""

    def stored(self, given: ev.HookStates) -> Mapping[str, bytes]:
        """What the checkpoint holds of them."""
        return {name: state for name, state in given.states.items() if state is not None and name in self._names}

    def completed(self, epoch: int) -> list[Instruction]:
        """Rule: of each checkpoint that completes they are told, before anybody who waits for it goes on. Once more than needed is fine."""
        return [do.TellHooks(epoch, completed=True)] if self._names else []

    def aborted(self, epoch: int) -> list[Instruction]:
        return [do.TellHooks(epoch, completed=False)] if self._names else []
