"""Noticing that the configuration file changed, and taking it over or refusing it."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from tidegate.config import Config, ConfigError, parse, read
from tidegate.config_values import FOLLOWED
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.config")

POLL_SECONDS = 0.5
"""Pause between two looks at the file. Its bytes are compared, not its times: a Kubernetes ConfigMap swaps a link."""

FIXED = ("admin", "agents", "control", "decision_log", "envoy", "redis", "scrape")
"""Sections that cannot change while the process runs: sockets that others were told of, the scraper's rhythm, an open
file, what is shared."""


def refuse_fixed(current: Config, wanted: Config, name: str) -> None:
    """Refuse ``wanted``, from the file ``name``, where a running process cannot take it over.

    Raises:
        ConfigError: it changes something that needs a restart; a line for each.
    """
    changed = [section for section in FIXED if getattr(current, section) != getattr(wanted, section)]
    if current.limits.lease_seconds != wanted.limits.lease_seconds:
        changed.append("limits.lease_seconds")
    changed += [
        f"picker.{key}"
        for key in ("health_port", "drain_seconds")
        if getattr(current.picker, key) != getattr(wanted.picker, key)
    ]
    if changed:
        expected = "cannot change while running; expected it as it was, or a restart"
        raise ConfigError("\n".join(f"{name}: {section}: {expected}" for section in changed))


class ConfigFile:
    """A configuration file that is watched.

    A change is looked at only once its bytes have stood still for one poll, so that a half-written file is not judged.
    """

    def __init__(self, path: Path, current: Config, adjust: Callable[[Config], Config] = lambda config: config) -> None:
        """Watch ``path``, from which ``current`` was just read; what is taken over is what ``adjust`` makes of it."""
        self._path = path
        self._adjust = adjust
        self._current = current
        self._judged = hashlib.sha256(read(path)).digest()
        self._seen = self._judged
        self._gone = False
        self._asked = False
        self._outdated = False
        self._wake = asyncio.Event()

    def reload(self) -> None:
        """Look at the file now, changed or not (SIGHUP)."""
        self._asked = True
        self._wake.set()

    def adjusted(self) -> Config:
        """Return the last good configuration, adjusted to what is known now."""
        return self._adjust(self._current)

    def readjust(self) -> None:
        """Take the last good configuration over once more, whatever the file holds now: it is to be adjusted anew."""
        self._outdated = True
        self._wake.set()

    async def watch(self, apply: Callable[[Config], Awaitable[None]], refused: Callable[[str], None]) -> None:
        """Call ``apply`` with each new configuration and ``refused`` with each refusal's reason, until cancelled."""
        while True:
            asked = await self._tick()
            if self._outdated:
                self._outdated = False
                await apply(self.adjusted())
                if not asked:
                    continue
            try:
                text = await asyncio.to_thread(read, self._path)
            except OSError as error:
                if asked or not self._gone:
                    self._refuse(f"{self._path}: cannot be read ({error.strerror})", refused)
                self._gone = True
                # Whatever comes back is judged, what was in force before as well: or the refusal would stand for ever.
                self._judged = b""
                continue
            self._gone = False
            digest = hashlib.sha256(text).digest()
            stood_still, self._seen = digest == self._seen, digest
            if asked or (stood_still and digest != self._judged):
                self._judged = digest
                await self._judge(text, apply, refused)

    async def _tick(self) -> bool:
        """Wait for the next poll; return whether a look was asked for."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), POLL_SECONDS)
        self._wake.clear()
        asked, self._asked = self._asked, False
        return asked

    async def _judge(
        self, text: bytes, apply: Callable[[Config], Awaitable[None]], refused: Callable[[str], None]
    ) -> None:
        try:
            # In a thread: a thousand endpoints take a fifth of a second to parse.
            wanted = await asyncio.to_thread(parse, text, str(self._path), FOLLOWED)
            refuse_fixed(self._current, wanted, str(self._path))
        except ConfigError as error:
            self._refuse(str(error), refused)
            return
        self._current = wanted
        await apply(self._adjust(wanted))
        event(logger, "configuration reloaded", file=str(self._path), pools=len(wanted.pools))

    def _refuse(self, reason: str, refused: Callable[[str], None]) -> None:
        event(logger, "configuration refused, the last good one goes on", level=logging.ERROR, reason=reason)
        refused(reason)
