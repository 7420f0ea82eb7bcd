"""What all parts of one run share."""

from __future__ import annotations

from spark_ckpt.protocol.checkpoints.hooks import Hooks
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.instructions import Gate
from spark_ckpt.protocol.machine import Questions
from spark_ckpt.protocol.settings import Settings


class Context:
    """`gate`: what the seal of an epoch waits for. `now_ms`: the runtime's clock at the event in hand."""

    def __init__(self, claim: Claim, settings: Settings, gate: Gate, questions: Questions, hooks: tuple[str, ...] = ()) -> None:
        self.claim = claim
        self.settings = settings
        self.gate = gate
        self.questions = questions
        self.hooks = Hooks(hooks)
        self.now_ms = 0

    @property
    def waits_for_checkpoints(self) -> bool:
        """Every epoch is a checkpoint, and its end waits for it; not in real time, where nothing waits."""
        return self.gate is Gate.EPOCH
