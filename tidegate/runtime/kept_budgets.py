"""What tenants have used, kept over a restart, where there is a folder for what is kept."""

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from tidegate.config import Config
from tidegate.runtime import kept
from tidegate.runtime.part import Part
from tidegate.scheduling.allowance import Allowance, AllowanceImage
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.tenants")

FILE: Final = "budgets.json"

KEEP_SECONDS: Final = 2.0
"""How often it is written down; as much use is forgotten when the process dies. When it is told to end, none is."""


class KeptBudgets(Part):
    """Writes down what was used, and begins with what was written down.

    What was in flight is settled when its end is told. Where that is not told in time, what it took stays taken, as it
    does of an answer whose usage nobody told.
    """

    def __init__(self, allowance: Allowance, config: Config) -> None:
        """Keep ``allowance`` where ``config`` says, if it does."""
        folder = config.control.state_dir
        self._allowance = allowance
        self._file = None if folder is None else Path(folder) / FILE
        self._lease = config.limits.lease_seconds
        self._written = AllowanceImage()
        self._well = True
        self._from_before: tuple[str, ...] = ()
        self._one_by_one = threading.Lock()
        self._numbers = itertools.count(1)
        self._newest = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Begin with what was kept, before anybody asks; write down the rest at the end."""
        if self._file is None:
            yield
            return
        self._restore(self._file)
        try:
            yield
        finally:
            self._write(self._file, self._allowance.image(), next(self._numbers))

    async def run(self) -> None:
        """Write down what changes, and give up in time what was in flight before."""
        if self._file is None:
            return
        loop = asyncio.get_running_loop()
        given_up = loop.time() + self._lease
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if self._from_before and loop.time() > given_up:
                for request_id in self._from_before:
                    self._allowance.settle(request_id, None, None)
                self._from_before = ()
            image = self._allowance.image()
            if image != self._written:
                await asyncio.to_thread(self._write, self._file, image, next(self._numbers))

    def _restore(self, file: Path) -> None:
        try:
            found = kept.read(file)
            image = AllowanceImage() if found is None else msgspec.convert(found, AllowanceImage)
            self._allowance.restore(image)
        except (OSError, ValueError, msgspec.ValidationError) as error:
            level, reason = logging.ERROR, str(error)
            event(logger, "budgets begin anew", level=level, file=str(file), reason=reason)
            return
        self._written, self._from_before = image, tuple(hold.id for hold in image.budgets.held)

    def _write(self, file: Path, image: AllowanceImage, number: int) -> None:
        """Write ``image``, in whatever thread, unless one of a higher ``number`` was written, which is newer."""
        with self._one_by_one:
            if number < self._newest:
                return
            try:
                kept.write(file, msgspec.to_builtins(image))
            except OSError as error:
                if self._well:
                    event(logger, "budgets not kept", level=logging.ERROR, file=str(file), reason=str(error))
                self._well = False
                return
            self._well, self._written, self._newest = True, image, number
