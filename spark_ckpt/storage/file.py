"""`file:///path`: one file per object below a folder; survives power loss (POSIX link/rename and fsync).

A value is written to `.tmp/` below the root, synced, and only then given its name: by link(2), which fails if the name exists, for
put-if-absent, by rename(2) otherwise. The folders are synced before the call returns. What a crash leaves in `.tmp/` is never listed.
A symbolic link below the root is neither an object nor a folder (folders.py).
"""

from __future__ import annotations

import errno
import heapq
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from stat import S_ISREG

from spark_ckpt.errors import ConfigError, DamagedError, ObjectMissingError, OutcomeUnknownError, StorageError, StorageSetupError, printable
from spark_ckpt.storage.base import (
    LARGEST_READ,
    OPTION,
    PAGE,
    PutResult,
    Slice,
    Storage,
    Stored,
    check_key,
    check_prefix,
    check_size,
    is_key,
)
from spark_ckpt.storage.checksums import CHUNK
from spark_ckpt.storage.file_faults import NO_LINKS, explain, may_have_happened
from spark_ckpt.storage.file_temporaries import changed_ms, end, forget, give_name, sweep, sync, sync_folder, write_all
from spark_ckpt.storage.folders import NO_FOLDER, Folders, looked_again
from spark_ckpt.storage.slices import SliceReader, check_slices, download, local_write_error

_TEMP = ".tmp"
_RACES = 100
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A pipe that somebody has put there would be waited for."""


class FileStorage(Storage):
    """The folder is created by the first put, not by opening: a mistyped path that is only read leaves no trace.

    Counts requests as S3 would: a listing is one per 1000 keys, a deletion one per 1000 keys.
    """

    def __init__(self, url: str, called: str = OPTION) -> None:
        path = url[len("file:") :]
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            if host not in ("", "localhost"):
                raise ConfigError(f"the storage {url} names a host; write file:///{host}/{rest} for a local folder")
            path = slash + rest
        if not path.startswith("/") or "\0" in path:
            raise ConfigError(f"the storage {printable(url)} is not an absolute path; write file:///path")
        self._root = Path(os.path.normpath("/" + path.lstrip("/")))
        super().__init__(f"file://{self._root}", called=called)
        self._folders = Folders(self._root, called)
        self._prepared = False
        self._unsynced: set[str] = set()
        """Keys that this put, and that a power loss may take: who reads them back takes them for stored."""

    def put(self, key: str, data: bytes) -> None:
        self._begin(key, "put")
        self._publish(key, lambda fd: write_all(fd, data), replace=True)

    def put_slices(self, key: str, slices: Sequence[Slice]) -> None:
        self._begin(key, "put")
        check_slices(slices)

        def write(fd: int) -> None:
            with SliceReader(slices) as reader:
                while chunk := reader.read(CHUNK):
                    write_all(fd, chunk)

        self._publish(key, write, replace=True)

    def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
        self._begin(key, "put_if_absent")
        return self._publish(key, lambda fd: write_all(fd, data), replace=False)

    def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
        found = bytearray()
        self._read(key, offset, length, limit, found.extend)
        return bytes(found)

    def get_to_file(self, key: str, offset: int, length: int, path: Path, at: int | None = None) -> int:
        try:
            with download(path, at) as out:

                def take(chunk: bytes) -> None:
                    try:
                        out.write(chunk)
                    except OSError as error:
                        raise local_write_error(path, error) from error

                self._read(key, offset, length, length, take)
        except OSError as error:
            raise local_write_error(path, error) from error
        return out.checksum

    def size(self, key: str) -> int | None:
        self._begin(key, "head")
        try:
            status = self._status(key)
        except OSError as error:
            raise self._explain(error, self._path(key), "read") from error
        return status.st_size if status is not None and S_ISREG(status.st_mode) else None

    def _status(self, key: str) -> os.stat_result | None:
        folder, name = _split(key)

        def look() -> os.stat_result:
            with self._folders.open(folder) as opened:
                return os.stat(name, dir_fd=opened[-1], follow_symlinks=False)

        try:
            return looked_again(look)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        self._check_open()
        check_prefix(prefix)
        yield from self.traffic.listed(self._walk(_folder_of(prefix), prefix, os.fsencode(start_after)))

    def list_folders(self, prefix: str) -> Iterator[str]:
        self._check_open()
        check_prefix(prefix)
        self.traffic.request("list")
        for key, _ in self._entries(_folder_of(prefix), lambda key: key.endswith("/") and key.startswith(prefix)):
            if any(True for _ in self._walk(key, key, b"")):
                yield key

    def delete(self, keys: Iterable[str]) -> None:
        self._check_open()
        split = [_split(check_key(key)) for key in keys]
        self.traffic.request("delete", -(-len(split) // PAGE))
        emptied: set[str] = set()
        for folder, group in groupby(split, key=lambda one: one[0]):
            names = [name for _, name in group]
            try:
                looked_again(partial(self._unlink, folder, names, emptied))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise self._explain(error, self._path(folder), "delete") from error
        for folder in emptied:
            self._remove_empty(folder)

    def _unlink(self, folder: str, names: Iterable[str], emptied: set[str]) -> None:
        """Adds the folder to `emptied` if there was one of these."""
        with self._folders.open(folder) as opened:
            for name in names:
                try:
                    os.unlink(name, dir_fd=opened[-1])
                except (FileNotFoundError, IsADirectoryError):
                    continue
                except OSError as error:
                    if error.errno == errno.ESTALE:
                        raise
                    raise self._explain(error, self._path(f"{folder}/{name}"), "delete") from error
                emptied.add(folder)

    def end(self, first: str, data: bytes) -> None:
        """For a folder that one user has written to since it put `first`, an object that holds `data`, and that others take from here on:
        what that user has left in `.tmp/` when it was killed is removed, and `.tmp/` too if nothing else lies there."""
        status = self._status(first)
        self._forget(None if status is None else status.st_mtime_ns, data)

    def end_all(self) -> None:
        """The same for a folder in which nobody has anything to write any more: all goes."""
        self._forget(0, b"")

    def _forget(self, since_ns: int | None, data: bytes) -> None:
        try:
            with self._folders.open(_TEMP, listed=True) as opened:
                if since_ns is not None:
                    end(opened[-1], since_ns, data)
                with suppress(OSError):  # somebody writes there, or nothing may be deleted beside it: an empty folder hurts nobody
                    os.rmdir(_TEMP, dir_fd=opened[0])
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._explain(error, self._path(_TEMP), "delete") from error

    def close(self) -> None:
        self._closed = True

    def _begin(self, key: str, operation: str) -> None:
        self._check_open()
        check_key(key)
        self.traffic.request(operation)

    def _path(self, key: str) -> Path:
        return self._root / key

    # ---- writing

    def _publish(self, key: str, write: Callable[[int], None], replace: bool) -> tuple[PutResult, int | None]:
        """The time is that at which the file got its name, before which a process may freeze; and so it may before it forgets the other
        name, which changes the time again."""
        self._prepare()
        with ExitStack() as stack:
            try:
                temps = looked_again(lambda: stack.enter_context(self._folders.open(_TEMP, make=True))[-1])
            except OSError as error:
                raise self._explain(error, self._path(_TEMP), "create") from error
            temp = self._write_temp(temps, write)
            try:
                result = self._give_name(temps, temp, key, replace)
                named_ms = None if replace or result is PutResult.EXISTS else changed_ms(temps, temp)
            finally:
                forget(temps, temp)
        return result, named_ms

    def _prepare(self) -> None:
        """Before the first put: make the root, sync the way to it, and drop temporary files that are older than a day."""
        if self._prepared:
            return
        with ExitStack() as stack:
            try:
                opened = looked_again(lambda: stack.enter_context(self._folders.open(_TEMP, make=True)))
            except OSError as error:
                raise self._explain(error, self._root, "create") from error
            for fd, folder in zip(reversed(opened), (self._path(_TEMP), self._root), strict=True):
                self._sync_way(folder, fd)
            sweep(opened[-1])
        for folder in self._root.parents:
            self._sync_way(folder)
        self._prepared = True

    def _write_temp(self, temps: int, write: Callable[[int], None]) -> str:
        """The name of a new file in the folder `temps`."""
        temp = uuid.uuid4().hex
        try:
            fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=temps)
            try:
                write(fd)
                os.fsync(fd)
                self.traffic.sent(os.fstat(fd).st_size)
            finally:
                os.close(fd)
        except OSError as error:
            forget(temps, temp)
            raise self._explain(error, self._path(f"{_TEMP}/{temp}"), "write") from error
        except BaseException:
            forget(temps, temp)
            raise
        return temp

    def _sync_way(self, folder: Path, fd: int | None = None) -> None:
        """`fd`: where it is open."""
        try:
            sync_folder(folder) if fd is None else sync(fd)
        except PermissionError:
            pass  # a folder above the root that this user may not even read was not made by this user
        except OSError as error:
            raise self._explain(error, folder, "sync") from error

    def _give_name(self, temps: int, temp: str, key: str, replace: bool) -> PutResult:
        """Retries on a race: (1) this makes the folder, (2) a delete elsewhere removes it as empty, (3) this names the file."""
        target = self._path(key)
        doubtful = False
        try:
            for _ in range(_RACES):
                result = self._try_name(temps, temp, key, replace)
                if isinstance(result, PutResult):
                    return result
                doubtful = doubtful or may_have_happened(result)
            raise StorageError(f"the folder {target.parent} keeps vanishing while {target.name} is stored there; leave that folder alone")
        except StorageError as error:
            if not doubtful or isinstance(error, OutcomeUnknownError):
                raise
            raise OutcomeUnknownError(f"cannot tell whether {target} was written: {error}") from error

    def _try_name(self, temps: int, temp: str, key: str, replace: bool) -> PutResult | OSError:
        """An OSError: how it was told that the folder has vanished."""
        folder, name = _split(key)
        target = self._path(key)
        with ExitStack() as stack:
            try:
                opened = looked_again(lambda: stack.enter_context(self._folders.open(folder, make=True)))
            except FileNotFoundError as error:
                return error
            except OSError as error:
                raise self._explain(error, target, "write") from error
            try:
                result = give_name(temps, temp, opened[-1], name, replace)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise self._not_named(error, target, opened[-1], replace) from error
                trouble = self._not_kept(temps, temp)
                if trouble is None:
                    return error
                # a rename that a network file system has sent twice finds it renamed
                if replace or may_have_happened(error):
                    raise OutcomeUnknownError(f"cannot tell whether {target} was written: {trouble}") from error
                raise trouble from error
            self._sync_folders(opened, key)
            return result

    def _not_kept(self, temps: int, temp: str) -> StorageError | None:
        """Why the temporary file may be gone. None: it is there."""
        path = self._path(f"{_TEMP}/{temp}")
        try:
            os.stat(temp, dir_fd=temps, follow_symlinks=False)
        except FileNotFoundError:
            return StorageError(f"the temporary file {path} was removed while it was in use; leave that folder alone")
        except OSError as error:
            return self._explain(error, path, "read")
        return None

    def _not_named(self, error: OSError, target: Path, folder: int, replace: bool) -> StorageError:
        if may_have_happened(error):
            return OutcomeUnknownError(f"cannot tell whether {target} was written: {error.strerror or error}; check the disk and its mount")
        if not replace and error.errno in NO_LINKS and os.access(".", os.W_OK, dir_fd=folder):
            return StorageSetupError(
                f"the file system of {self._root} has no hard links, so put-if-absent is impossible there; "
                f"choose another {self.called}"
            )
        return self._explain(error, target, "write")

    def _sync_folders(self, opened: Sequence[int], key: str) -> None:
        """Sync every folder from the file's up to the root: another process may have made one and not synced it yet."""
        try:
            for fd in reversed(opened):
                sync(fd)
        except OSError as error:
            self._unsynced.add(key)
            raise OutcomeUnknownError(
                f"{self._path(key)} was written but its folder could not be synced: {error.strerror or error}; check the disk"
            ) from error
        self._unsynced.discard(key)

    def _remove_empty(self, folder: str) -> None:
        with suppress(OSError):  # not empty, or removed by somebody else
            while folder:
                above, name = _split(folder)
                with self._folders.open(above) as opened:
                    os.rmdir(name, dir_fd=opened[-1])
                folder = above

    # ---- reading

    def _read(self, key: str, offset: int, length: int | None, limit: int, take: Callable[[bytes], object]) -> None:
        self._begin(key, "get")
        taken = 0
        version: tuple[int, int, int] | None = None

        def look() -> None:
            nonlocal taken, version
            with self._opened(key) as fd:
                status = os.fstat(fd)
                found = (status.st_ino, status.st_size, status.st_mtime_ns)
                if taken and found != version:
                    raise StorageError(f"{self._path(key)} was replaced while it was read; read it again")
                version = found
                begin, end = _bounds(status, f"{self.url}/{key}", offset, length, limit)
                while begin + taken < end:
                    chunk = os.pread(fd, min(CHUNK, end - begin - taken), begin + taken)
                    if not chunk:
                        raise DamagedError(f"{self.url}/{key} became shorter while it was read")
                    taken += len(chunk)
                    take(chunk)

        try:
            looked_again(look)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissingError(f"{self.url}/{key} does not exist") from None
        except OSError as error:
            if error.errno in NO_FOLDER:
                raise ObjectMissingError(f"{self.url}/{key} does not exist") from None
            raise self._explain(error, self._path(key), "read") from error
        self.traffic.received(taken)

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        """A descriptor of the file. Raises OSError."""
        folder, name = _split(key)
        with self._folders.open(folder) as opened:
            if key in self._unsynced:
                self._sync_folders(opened, key)
            fd = os.open(name, _FILE, dir_fd=opened[-1])
        try:
            yield fd
        finally:
            os.close(fd)

    def _walk(self, folder: str, prefix: str, start_after: bytes) -> Iterator[Stored]:
        def wanted(key: str) -> bool:
            if key.endswith("/"):
                raw = os.fsencode(key)
                return (key.startswith(prefix) or prefix.startswith(key)) and (raw > start_after or start_after.startswith(raw))
            return key.startswith(prefix) and os.fsencode(key) > start_after

        for key, entry in self._entries(folder, wanted):
            if key.endswith("/"):
                yield from self._walk(key, prefix, start_after)
                continue
            try:
                stat = _status_of(entry) or self._status(key)
            except OSError as error:
                raise self._explain(error, self._path(key), "read") from error
            if stat is not None:
                yield Stored(key, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def _entries(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """The keys of a folder's entries, folders with a `/` at the end: in this order a walk yields keys in S3's (UTF-8 bytes).

        There may be a million, of which somebody wants the last few, or the first: what is not wanted is not kept, and nothing is sorted
        that is not asked for.
        """
        with ExitStack() as stack:

            def look() -> list[tuple[bytes, str, os.DirEntry[str]]]:
                at = stack.enter_context(self._folders.open(folder, listed=True))[-1]
                with os.scandir(at) as entries:
                    names = ((e, _listed_as(e)) for e in entries if is_key(e.name))
                    keys = ((folder + name, e) for e, name in names if name)
                    return [(os.fsencode(key), key, e) for key, e in keys if wanted(key)]

            try:
                found = looked_again(look)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError as error:
                raise self._explain(error, self._path(folder), "list") from error
            heapq.heapify(found)
            while found:
                _, key, entry = heapq.heappop(found)
                yield key, entry

    def _explain(self, error: OSError, path: Path, doing: str) -> StorageError:
        return explain(error, path, doing, self._prepared, self.called)


def _folder_of(prefix: str) -> str:
    return prefix[: prefix.rfind("/") + 1]


def _split(key: str) -> tuple[str, str]:
    """The folder, empty for the root, and the name in it."""
    folder, _, name = key.rpartition("/")
    return folder, name


def _listed_as(entry: os.DirEntry[str]) -> str | None:
    """None for what is neither an object nor a folder of objects."""
    if entry.is_dir(follow_symlinks=False):
        return f"{entry.name}/"
    return entry.name if entry.is_file(follow_symlinks=False) else None


def _bounds(status: os.stat_result, url: str, offset: int, length: int | None, limit: int) -> tuple[int, int]:
    """From which byte to which an object is read."""
    if not S_ISREG(status.st_mode):
        raise ObjectMissingError(f"{url} does not exist")
    size = status.st_size
    end = size if length is None else offset + length
    if offset > size or end > size:
        raise DamagedError(f"{url} has {size} bytes, too few for the range from {offset} to {end}")
    check_size(url, end - offset, limit)
    return offset, end


def _status_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None: it is to be looked for anew. Another machine may have removed the folder, and made it again."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return None
