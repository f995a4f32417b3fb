"""Files that operators name, read without waiting: whatever is there now, it is a file, or an error at once.

The paths are read again and again while we run, some of them in the event loop's thread. A pipe in place of a file
would be waited at until somebody writes into it, and a thread that waits so cannot be ended.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

SMALL_BYTES: Final = 1_048_576
"""Bound of what is a certificate, a key, a password or a token."""


def read(path: str | Path, most: int = SMALL_BYTES) -> bytes:
    """Return what is in the file at ``path``, links followed; of more than ``most`` bytes, the first ``most + 1``.

    Raises:
        OSError: it cannot be read, or is a folder, a pipe, a device or a socket.
    """
    with open(path, "rb", opener=opened) as file:
        return file.read(most + 1)


def opened(path: str, flags: int) -> int:
    """Open the file at ``path``, for ``open``; a new one is made where ``flags`` say so.

    Raises:
        OSError: it cannot be opened, or is no file.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)
