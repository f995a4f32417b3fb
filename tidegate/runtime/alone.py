"""Deciding in the control plane's own process: what there is without workers."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from extproc.h2_transport import Inflows
from tidegate.config import Config
from tidegate.config_control import Control
from tidegate.fleet.events import FleetEvent
from tidegate.runtime import services
from tidegate.runtime.decider import Decider
from tidegate.runtime.lessons import Lesson
from tidegate.runtime.tenants import Tenants
from tidegate.telemetry.status import JsonObject


class Alone:
    """The one decider of a control plane without workers, in the form of a ``Team`` of which it is the only member."""

    def __init__(self, decider: Decider, config: Config, tenants: Tenants) -> None:
        """Have ``decider`` decide, its decisions recorded as ``config`` says, and ``tenants`` count what is used."""
        self.decider = decider
        self._tenants = tenants
        self._log = decider.recording(config)

    @contextlib.asynccontextmanager
    async def starting(self, control: Control) -> AsyncIterator[None]:  # noqa: ARG002  a worker would need it
        """Nothing has to be started."""
        yield

    @contextlib.asynccontextmanager
    async def serving(self, control: Control, inflows: Inflows) -> AsyncIterator[None]:
        """Listen for Envoy; with h2 ``inflows`` come the same way.

        Raises:
            BindError: the port cannot be bound.
        """
        with contextlib.closing(self.decider):
            async with services.ext_proc(control, control.ext_proc_port, self.decider.desk, inflows=inflows):
                try:
                    yield
                finally:
                    # While their streams are still served, which is for a second.
                    self.decider.waiting_room.close()

    async def run(self) -> None:
        """Write down decisions, where that is wanted; nothing is to be kept alive."""
        if self._log is not None:
            await self._log.run()

    async def ready(self, config: Config) -> None:
        """Load what counts tokens.

        Raises:
            VocabularyError: a vocabulary is missing.
        """
        await self.decider.warm(config)

    async def prepare(self, config: Config) -> None:
        """Load what ``config`` needs."""
        await self.decider.prompts.load(config)

    def configure(self, config: Config) -> None:
        """Decide by ``config`` from now on."""
        self._tenants.configure(config)
        self.decider.configure(config)

    async def settled(self) -> None:
        """Nobody else has to follow."""

    def tell(self, event: FleetEvent, now: float) -> None:
        """Nobody else has to know."""

    def teach(self, lesson: Lesson) -> None:
        """Nobody else has to know."""

    def unready(self) -> Sequence[str]:
        """Return why it cannot decide."""
        return ()

    def status(self) -> Sequence[JsonObject]:
        """Return its workers: none."""
        return ()
