"""What is kept on disk over a restart: small JSON files, each written whole or not at all."""

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tidegate import regular_file

MAX_BYTES = 16_777_216


def prepare(folder: str) -> None:
    """Make ``folder`` if it is not there.

    Raises:
        OSError: it cannot be made, is none, or cannot be written to.
    """
    Path(folder).mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def write(file: Path, content: Any) -> None:
    """Replace ``file`` by ``content``, which must be JSON; a crash at any moment leaves the old file or the new one.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    if not file.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(file.parent))
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            json.dump(content, new, allow_nan=False)
            new.flush()
            os.fsync(new.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(file: Path) -> Any:
    """Return what was kept in ``file``; ``None`` where there is no such file.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds something else, or far too much.
    """
    try:
        text = regular_file.read(file, MAX_BYTES)
    except FileNotFoundError:
        return None
    if len(text) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return json.loads(text)
