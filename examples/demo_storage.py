"""What the demo reads of a stream's storage, through the package's own readers."""

from __future__ import annotations

import time

from demo_machine import DemoError, Job

from spark_ckpt.errors import ObjectMissingError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.paths import (
    LOG_PREFIX,
    RUN_PREFIX,
    checkpoints_prefix,
    metadata_key,
    parse_checkpoint_prefix,
    parse_log_key,
    parse_run_prefix,
    stream_url,
)
from spark_ckpt.protocol.entries import Claim, Entry, decode
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.metadata.codec import decode_metadata

START = 90.0
"""Seconds in which a restarted job must have claimed its stream."""


class Stream:
    """One stream's storage, from outside: completed checkpoints and the log."""

    def __init__(self, storage: str, checkpoint_location: str) -> None:
        self._storage = open_storage(stream_url(storage, checkpoint_location))
        self._known: set[CheckpointId] = set()

    @property
    def seen(self) -> int:
        """How many completed checkpoints have been seen; those past `spark.ckpt.retained` are deleted again."""
        return len(self._known)

    def completed_since_last_look(self) -> list[Checkpoint]:
        """Checkpoints that have completed, oldest first. One that was dropped between listing and reading is not among them."""
        found = []
        for checkpoint in sorted(set(self._listed()) - self._known):
            try:
                found.append(decode_metadata(self._storage.get(metadata_key(checkpoint)), where=metadata_key(checkpoint)))
            except ObjectMissingError:
                continue
            self._known.add(checkpoint)
        return found

    def newest_completed(self) -> CheckpointId | None:
        """The newest checkpoint whose `_metadata` exists."""
        return max((c for c in self._listed() if self._storage.size(metadata_key(c)) is not None), default=None)

    def wait_for_claim(self, run: int, job: Job) -> Claim:
        """The claim that a run has appended to the log. Raises `DemoError` if the job ends without one, or does not come to it."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            running = job.running()
            for entry in self._log():
                if isinstance(entry, Claim) and entry.run == run:
                    return entry
            if not running:
                raise DemoError(f"the job ended with status {job.status()} before it claimed its stream", job.last_words())
            time.sleep(0.1)
        raise DemoError(f"the job has not claimed its stream within {START:.0f} s", job.last_words())

    def _listed(self) -> list[CheckpointId]:
        runs = [r for r in map(parse_run_prefix, self._storage.list_folders(RUN_PREFIX)) if r is not None]
        folders = [f for run in runs for f in self._storage.list_folders(checkpoints_prefix(run))]
        return [c for c in map(parse_checkpoint_prefix, folders) if c is not None]

    def _log(self) -> list[Entry]:
        numbered = [(parse_log_key(stored.key), stored.key) for stored in self._storage.list(LOG_PREFIX)]
        return [decode(number, self._storage.get(key)) for number, key in numbered if number is not None]
