"""The endpoints that were found last, kept over a restart: a directory that is away then takes none of them along."""

import asyncio
import logging
from pathlib import Path
from typing import Final

import msgspec

from tidegate.config import Config
from tidegate.discovery.contract import MAX_ENDPOINTS, Found
from tidegate.fleet.events import PoolsDeclared
from tidegate.runtime import kept
from tidegate.runtime.discovered import Discovered
from tidegate.runtime.part import Part
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.discovery")

FILE: Final = "endpoints.json"

KEEP_SECONDS: Final = 1.0
"""How long changes are gathered before they are written down."""


class KeptPool(msgspec.Struct, frozen=True):
    """What was found for one pool, by a source of this ``kind``."""

    kind: str
    found: tuple[Found, ...]


def remembered(folder: str | None) -> dict[str, KeptPool]:
    """Return what was kept in ``folder``, by pool; nothing where there is no folder, or nothing that can be read."""
    if folder is None:
        return {}
    file = Path(folder) / FILE
    try:
        content = kept.read(file)
        pools = {} if content is None else msgspec.convert(content, dict[str, KeptPool])
    except (OSError, ValueError, msgspec.ValidationError) as error:
        event(logger, "kept endpoints not read", level=logging.ERROR, file=str(file), reason=str(error))
        return {}
    return {name: KeptPool(pool.kind, pool.found[:MAX_ENDPOINTS]) for name, pool in pools.items()}


class KeptEndpoints(Part):
    """Writes down which endpoints are found, whenever that changes."""

    def __init__(self, discovered: Discovered, config: Config) -> None:
        """Write what ``discovered`` finds where ``config`` says, if it does."""
        folder = config.control.state_dir
        self._file = None if folder is None else Path(folder) / FILE
        self._discovered = discovered
        self._changed = asyncio.Event()
        self._written = dict[str, KeptPool]()

    def follow(self, config: Config, declared: PoolsDeclared) -> None:  # noqa: ARG002
        """Take note that something may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Write, for ever, once every source was read: what is only remembered is written down already."""
        if self._file is None:
            return
        await self._discovered.read()
        while True:
            await self._changed.wait()
            await asyncio.sleep(KEEP_SECONDS)
            self._changed.clear()
            found = {name: KeptPool(kind, found) for name, (kind, found) in self._discovered.found().items()}
            if found == self._written:
                continue
            try:
                await asyncio.to_thread(kept.write, self._file, msgspec.to_builtins(found))
            except OSError as error:
                event(logger, "endpoints not kept", level=logging.ERROR, file=str(self._file), reason=str(error))
            else:
                self._written = found
