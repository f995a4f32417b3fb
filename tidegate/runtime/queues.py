"""The part of the control plane that keeps its queues moving, and shows them."""

from collections.abc import Mapping

from tidegate.fleet.events import FleetChange, ReservationReleased
from tidegate.runtime.part import Part, Surroundings
from tidegate.telemetry import queues as telemetry
from tidegate.telemetry.admin import Page, UnanswerableError
from tidegate.telemetry.status import JsonObject


class Queues(Part):
    """The queues of a control plane that decides itself. Where workers do, each has its own, and moves it."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Keep the waiting room moving, if there is one, and export what waits there."""
        self._room = surroundings.waiting_room
        if self._room is not None:
            surroundings.metrics.registry.register(telemetry.QueueCollector(self._room.standings))

    async def run(self) -> None:
        """Look for room that comes about without an event."""
        if self._room is not None:
            await self._room.run()

    def changed(self, change: FleetChange) -> None:
        """Look whose turn it is."""
        if self._room is not None:
            self._room.changed(endpoints=not isinstance(change, ReservationReleased))

    def pages(self) -> Mapping[str, Page]:
        """Return the page of the queues."""
        return {"/queue": Page("what waits for room, as JSON", self._page)}

    def _page(self, _: Mapping[str, str]) -> JsonObject:
        if self._room is None:
            raise UnanswerableError(501, "each worker has a queue of its own, and this process does not see it")
        return telemetry.describe(self._room.standings(), self._room.rate)
