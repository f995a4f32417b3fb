"""Files that outlive a restart: whole or not at all, whatever the disk does."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tidegate.runtime import kept

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("broken", ["os.fsync", "json.dump", "pathlib.Path.replace"])
def test_a_disk_that_is_full_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    file = tmp_path / "state.json"
    kept.write(file, {"last": "good"})

    def full(*_: Any, **__: Any) -> None:
        raise FULL

    with monkeypatch.context() as patched:
        patched.setattr(broken, full)
        with pytest.raises(OSError, match="No space left"):
            kept.write(file, {"new": "x" * 100_000})
    assert kept.read(file) == {"last": "good"}
    assert os.listdir(tmp_path) == ["state.json"], "nothing half written is left"  # noqa: PTH208
    kept.write(file, {"new": 1})
    assert kept.read(file) == {"new": 1}


def test_what_is_far_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_BYTES", 100)
    file = tmp_path / "state.json"
    kept.write(file, "x" * 200)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        kept.read(file)
