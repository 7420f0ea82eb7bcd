"""What an operating system's error means for a file storage: whether it could have happened, and what to tell a person.

The folder may lie on another machine. A network file system does what it is asked, and loses the answer: then the call fails though it is
done (nfs(5), `soft`; errors that the server met or the client made up).
"""

from __future__ import annotations

import errno
from pathlib import Path

from spark_ckpt.errors import StorageError, StorageSetupError
from spark_ckpt.storage.base import OPTION

NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
_NOT_DONE = frozenset(
    (
        *NO_LINKS,
        *_FULL,
        *_REFUSED,
        errno.EEXIST,
        errno.EILSEQ,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENFILE,
        errno.ENOENT,
        errno.ENOTEMPTY,
        errno.EXDEV,
    )
)
"""Of link(2) and rename(2): nothing but a refusal, by the client or by the server, is told so."""


def may_have_happened(error: OSError) -> bool:
    """What link(2) or rename(2) was to do."""
    return error.errno not in _NOT_DONE


def explain(error: OSError, path: Path, doing: str, begun: bool, called: str) -> StorageError:
    """The sentence for what has certainly not happened. `begun`: this storage has been written before. `called`: `Storage.called`."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return StorageError(f"cannot {doing} {path}: {reason}; free space there or point {called} to a larger disk")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageError(f"cannot {doing} {path}: {reason}; raise the number of files that may be open (ulimit -n)")
    if error.errno == errno.ENAMETOOLONG:
        shorter = f"checkpointLocation or {called}" if called == OPTION else called
        return StorageSetupError(f"cannot {doing} {path}: {reason}; use a shorter {shorter}")
    if error.errno in _REFUSED or (not begun and doing in ("create", "write")):
        return StorageSetupError(f"cannot {doing} {path}: {reason}; give this user access to it or choose another {called}")
    return StorageError(f"cannot {doing} {path}: {reason}; check the disk and its mount")
