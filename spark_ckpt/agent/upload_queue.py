"""Versions that have to become durable: they queue, their files are uploaded together, and each is answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_ckpt.agent.history import History, UploadReason, Version
from spark_ckpt.agent.staging import FileState, StateFile
from spark_ckpt.agent.uploads import Done, Uploader
from spark_ckpt.model import StoreId

QUEUED_BYTES = 8 << 20
"""What has to be durable is uploaded when so many bytes of it have come, if no flush comes before."""


@dataclass(frozen=True)
class Concluded:
    """A version that is durable now; or never will be, for that `cause`."""

    version: Version
    reason: UploadReason | None
    cause: str


class UploadQueue:
    """For the stream's own thread; `count` and `bytes` for any. `uploaded` hears of each object in another thread, and hands what it heard
    to `settle`; `concluded` hears of the versions that nothing is missing for any more."""

    def __init__(self, history: History, uploader: Uploader, uploaded: Done, concluded: Callable[[list[Concluded]], None]) -> None:
        self.bytes = 0
        """Of what is not stored yet."""
        self._history = history
        self._uploader = uploader
        self._uploaded = uploaded
        self._concluded = concluded
        self._queued: list[Version] = []
        self._queued_bytes = 0
        self._waiting: dict[Version, int] = {}
        self._in_flight: dict[StateFile, tuple[StoreId, list[Version]]] = {}
        """Files that are being uploaded, with their store and who waits for them."""

    @property
    def count(self) -> int:
        """Versions that are not answered yet."""
        return len(self._waiting)

    @property
    def is_uploading(self) -> bool:
        return bool(self._in_flight)

    @property
    def oldest(self) -> float | None:
        """Since when the first in the queue has been asked for, in monotonic seconds."""
        return min((v.at for v in self._queued), default=None)

    def add(self, version: Version, reason: UploadReason, at: float) -> None:
        if version.reason is not None:  # in hand already; but room that was not made need not be told to anybody
            version.reason = reason if version.reason is UploadReason.PRESSURE else version.reason
            return
        version.reason, version.at = reason, at
        self._queued.append(version)
        size = sum(file.length for file in version.chain.files if file.state is FileState.STAGED)
        self._queued_bytes += size
        self._waiting[version] = size
        self.bytes += size
        if self._queued_bytes >= QUEUED_BYTES:
            self.upload()

    def upload(self) -> None:
        """All that is queued. A segment holds the snapshots of one checkpoint only: it lives and dies with it."""
        queued, self._queued, self._queued_bytes = self._queued, [], 0
        uploads: dict[tuple[int, int], list[StateFile]] = defaultdict(list)
        settled: list[Version] = []
        for version in queued:
            files = () if version.chain.broken else version.chain.files
            taken = self._history.take_for_upload(files)
            self._in_flight.update((file, (version.store, [])) for file in taken)
            version.own, version.new_bytes = set(taken), sum(file.length for file in taken)
            version.missing = {file for file in files if file in self._in_flight}
            for file in version.missing:
                self._in_flight[file][1].append(version)
            if not version.missing:
                settled.append(version)
            uploads[_epoch_of(version)] += taken
        for (run, epoch), own in uploads.items():
            self._uploader.upload(run, epoch, own, self._uploaded)
        self._conclude(settled, {})

    def settle(self, files: Sequence[StateFile], cause: str) -> None:
        """An object's files are stored, gone or back. Who asked for those that are back is declined, who only waited takes them over."""
        landed = [(file, *self._in_flight.pop(file)) for file in files]
        failed = {v: cause for file, _, versions in landed if file.state is FileState.UPLOADING for v in versions if file in v.own}
        for version in failed:
            for file in version.missing:
                if file in self._in_flight:
                    self._in_flight[file][1].remove(version)
        settled: dict[Version, None] = {}
        again: dict[tuple[int, int], list[StateFile]] = defaultdict(list)
        for file, store, versions in landed:
            heirs = [v for v in versions if v not in failed]
            if file.state is not FileState.UPLOADING:
                for version in heirs:
                    version.missing.discard(file)
                    if not version.missing:
                        settled[version] = None
            elif heirs:
                heirs[0].own.add(file)
                heirs[0].new_bytes += file.length
                self._in_flight[file] = (store, heirs)
                again[_epoch_of(heirs[0])].append(file)
            else:
                self._history.give_back(store, [file])
        for (run, epoch), own in again.items():
            self._uploader.upload(run, epoch, own, self._uploaded)
        self._conclude(list(settled), failed)

    def settle_unanswered(self, files: Sequence[StateFile]) -> None:
        """The same after `drop_all`."""
        for file in files:
            self._history.give_back(self._in_flight.pop(file)[0], [file])

    def drop_all(self) -> None:
        """Nobody waits for any of it any more. What is being uploaded is still heard of."""
        self._uploader.end()
        self._queued, self._waiting, self.bytes = [], {}, 0

    def _conclude(self, settled: Sequence[Version], failed: dict[Version, str]) -> None:
        concluded = []
        for version in [*settled, *failed]:
            reason, version.reason = version.reason, None
            self.bytes -= self._waiting.pop(version, 0)
            version.own, version.missing = set(), set()
            concluded.append(Concluded(version, reason, failed.get(version) or version.chain.broken))
        self._concluded(concluded)


def _epoch_of(version: Version) -> tuple[int, int]:
    return (version.commit.run, version.commit.epoch) if version.commit else (0, 0)
