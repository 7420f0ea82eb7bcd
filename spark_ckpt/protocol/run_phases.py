"""The phases of a run, and where each event leads."""

from __future__ import annotations

from enum import Enum
from typing import Any

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.machine import Transition, leads


class RunPhase(Enum):
    IDLE = "IDLE"
    """Between two epochs."""
    PLANNING = "PLANNING"
    """The epoch's plan is being appended."""
    RUNNING = "RUNNING"
    """Tasks run; in exactly-once the plan is durable."""
    SEALED = "SEALED"
    """Where every epoch is a checkpoint: `commits/N` is known, and the driver waits for the checkpoint."""
    REPORTING = "REPORTING"
    """Damage is being noted in the log."""
    ENDING = "ENDING"
    """The stream's end is being noted in the log."""
    ENDED = "ENDED"
    """It is noted; puts of `_metadata` that are on their way are waited for, then all goes."""
    FAILED = "FAILED"
    FENCED = "FENCED"
    STOPPED = "STOPPED"


STOPPED = "the query was stopped; start it again"
_KEPT = {RunPhase.FENCED: "another run has claimed the stream", RunPhase.STOPPED: "it was stopped before"}


def why_kept(phase: RunPhase) -> str:
    """Why a stop in this phase, in which the run is over, deletes nothing."""
    return _KEPT.get(phase, "the query failed")


LIVE = (RunPhase.IDLE, RunPhase.PLANNING, RunPhase.RUNNING, RunPhase.SEALED)
OVER = tuple(phase for phase in RunPhase if phase not in LIVE)


def _table() -> dict[tuple[Any, type | ev.Timer], Transition]:
    idle, planning, running, sealed = LIVE
    failed, fenced = RunPhase.FAILED, RunPhase.FENCED
    answered, nothing = "_answered", leads("nothing")
    rows: dict[tuple[Any, type | ev.Timer], Transition] = {
        # The epoch in hand.
        (idle, ev.TriggerRequested): leads("_trigger", planning, running, failed),
        (planning, ev.EntryPut): leads(answered, running, failed),
        (planning, ev.EntryRead): leads(answered, running, failed, fenced),
        (planning, ev.PastSeen): leads(answered, running, failed, fenced),
        (planning, ev.Timer.PLAN): leads(answered, failed),
        (running, ev.TriggerRequested): leads("_trigger_again"),
        (running, ev.SealRequested): leads("_seal", idle, sealed, failed),
        (running, ev.Timer.LONG): leads(answered, failed),
        (sealed, ev.MetadataPut): leads(answered, idle, failed),
        (sealed, ev.MetadataRead): leads(answered, idle, failed),
        (sealed, ev.LeftAcksRead): leads(answered, running, failed),
        (idle, ev.SealRequested): leads("_seal_again"),
    }
    for phase in LIVE:
        live: dict[type | ev.Timer, Transition] = {
            # Its plan may still stand in the line while it runs, or has ended.
            ev.EntryPut: leads(answered, failed),
            ev.EntryRead: leads(answered, failed, fenced),
            ev.PastSeen: leads(answered, failed, fenced),
            ev.ReadFailed: leads(answered, failed),
            # Checkpoints, and what they wait for.
            ev.AcksReceived: leads("_acks", failed),
            ev.DeclineReceived: leads("_decline", failed),
            ev.HoldingReceived: leads("_holding"),
            ev.StateWanted: leads("_state_wanted"),
            ev.ExecutorsLost: leads("_executors_lost"),
            ev.FileStored: leads(answered, failed),
            ev.MetadataPut: leads(answered, failed),
            ev.MetadataRead: leads(answered, failed),
            ev.LeftAcksRead: leads(answered, failed),
            ev.Timer.EXPIRY: leads(answered, failed),
            ev.Timer.GRACE: leads(answered),
            ev.Timer.INTERVAL: leads(answered, failed),
            ev.Timer.PAUSE: leads(answered, failed),
            ev.Timer.UNASKED: leads(answered),
            ev.Timer.IDLE: leads(answered, failed),
            # Savepoints, deletions, and the ends.
            ev.SavepointStored: leads(answered),
            ev.OldEntriesListed: leads(answered),
            ev.PlansRead: leads(answered),
            ev.FinishRequested: leads("_finish", failed),
            ev.DamageReported: leads("_damage_reported", RunPhase.REPORTING),
            ev.StopRequested: leads("_stop", RunPhase.STOPPED, RunPhase.ENDING),
        }
        rows |= {(phase, key): row for key, row in live.items() if (phase, key) not in rows}
    for phase in OVER:
        rows[phase, ev.TriggerRequested] = leads("_refuse_trigger")
        rows[phase, ev.SealRequested] = leads("_refuse_seal")
        rows[phase, ev.FinishRequested] = leads("_refuse_finish")
        rows[phase, ev.StopRequested] = leads("_stop", RunPhase.STOPPED)
        rows[phase, ev.StateWanted] = leads("_refuse_state")
        for signal in (ev.AcksReceived, ev.DeclineReceived, ev.HoldingReceived, ev.ExecutorsLost, ev.DamageReported):
            rows[phase, signal] = nothing
    for phase in RunPhase:
        for answer in (ev.Deleted, ev.EntriesDeleted, ev.TrimFailed, ev.RequestAnswered):
            rows[phase, answer] = leads(answered)
    rows |= {
        (RunPhase.REPORTING, ev.EntryPut): leads(answered, failed),
        (RunPhase.REPORTING, ev.EntryRead): leads(answered, failed, fenced),
        (RunPhase.REPORTING, ev.ReadFailed): leads(answered, failed),
        (RunPhase.REPORTING, ev.StopRequested): leads("_stop_after_report"),
        (RunPhase.ENDING, ev.EntryPut): leads(answered, RunPhase.STOPPED),
        (RunPhase.ENDING, ev.EntryRead): leads(answered, RunPhase.STOPPED),
        (RunPhase.ENDING, ev.ReadFailed): leads(answered, RunPhase.STOPPED),
        (RunPhase.ENDING, ev.PastSeen): leads(answered, RunPhase.ENDED, RunPhase.STOPPED),
        (RunPhase.ENDING, ev.MetadataPut): leads(answered),
        (RunPhase.ENDED, ev.MetadataPut): leads(answered, RunPhase.STOPPED),
        # The end could not be noted before it was answered.
        (RunPhase.STOPPED, ev.MetadataPut): leads(answered),
    }
    return rows


TABLE = _table()
