"""Writes sampled decisions to a file of JSON lines, bounded in size.

A decision must not wait for a disk: what is to be written goes into a queue, and a thread writes it. When the queue is
full, records are dropped and counted.
"""

import asyncio
import logging
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

from tidegate import regular_file
from tidegate.scheduling.explain import Case
from tidegate.telemetry import decision_record
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.decisions")

QUEUE = 1000
"""Records that wait to be written; a case of 40 candidates has about 15 kB."""

FLUSH_SECONDS = 0.5
"""Pause between two times of writing."""


class DecisionLog:
    """One file. When it would outgrow its bound it is renamed to end in ``.1``, over an older one, and begun anew."""

    def __init__(self, file: Path, max_bytes: int) -> None:
        """Write to ``file``, which may exist already; with the one before it, it has at most twice ``max_bytes``."""
        self._file = file
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[Case, float]] = deque()
        self._failing = False
        self.dropped = 0

    def record(self, case: Case) -> None:
        """Have ``case`` written soon."""
        if len(self._waiting) >= QUEUE:
            self.dropped += 1
            return
        self._waiting.append((case, time.time()))

    async def run(self) -> None:
        """Write until cancelled, and then what is left."""
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                if self._waiting:
                    await asyncio.to_thread(self.flush)
        finally:
            self.flush()

    def flush(self) -> None:
        """Write what waits; a disk that does not take it costs the records and nothing else."""
        cases = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not cases:
            return
        lines = []
        for case, decided_at in cases:
            try:
                lines.append(decision_record.encode(case, decided_at))
            except (TypeError, ValueError):  # a model's name with half a surrogate pair, which JSON cannot write
                self.dropped += 1
        try:
            self._write(lines)
        except OSError as error:
            self.dropped += len(lines)
            if not self._failing:
                reason = error.strerror or str(error)
                event(logger, "decisions cannot be recorded", level=logging.ERROR, file=str(self._file), reason=reason)
            self._failing = True
        else:
            self._failing = False

    def _write(self, lines: list[bytes]) -> None:
        file = self._opened()
        try:
            size = file.tell()
            for line in lines:
                if size and size + len(line) > self._max_bytes:
                    file.close()
                    self._file.replace(self._file.with_name(f"{self._file.name}.1"))
                    file, size = self._opened(), 0
                file.write(line)
                size += len(line)
        finally:
            file.close()

    def _opened(self) -> BinaryIO:
        return open(self._file, "ab", opener=regular_file.opened)
