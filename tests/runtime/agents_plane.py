"""A control plane of the part that hears GPU agents alone, under a clock of its own."""

from typing import Any

from tests.configurations import parsed
from tests.fleet.declare import fleet_of, seen
from tests.health.reports import gpu, report
from tidegate.discovery import static
from tidegate.fleet.events import EvidenceReported, FleetEvent, TimePassed
from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.view import EndpointView
from tidegate.health.registry import Intake
from tidegate.health.reported import Condition, Report
from tidegate.runtime.agents import Agents
from tidegate.runtime.part import Surroundings
from tidegate.telemetry.metrics import Metrics

FIRST, SECOND = "10.0.0.7:8000", "10.0.0.8:8000"


class Plane:
    """A control plane of the part alone, under a clock of its own."""

    def __init__(self, *endpoints: dict[str, Any], engine: str = "none", **agents: Any) -> None:
        self.now = 1000.0
        self.said: dict[str, tuple[Evidence, float]] = {}
        pools = [{"name": "default", "engine": engine, "endpoints": list(endpoints)}]
        self.config = parsed({"agents": agents, "pools": pools})
        self.fleet = fleet_of()
        self.metrics = Metrics(lambda: self.fleet.views(self.now), int)
        assert self.config.agents is not None
        surroundings = Surroundings(self.fleet, self.apply, self.metrics, self.config, lambda: None)
        self.part = Agents(surroundings, self.config.agents, lambda: self.now)
        self.declared = static.declared(self.config)
        self.apply(self.declared)
        self.part.follow(self.config, self.declared)

    def apply(self, event: FleetEvent) -> None:
        if isinstance(event, EvidenceReported):
            self.said[event.address] = (event.evidence, self.now)
        for change in self.fleet.apply(event, self.now):
            self.part.changed(change)

    def hear(self, said: Report) -> None:
        """Have the service take in a report."""
        if self.part._registry.take(said, self.now) is Intake.TAKEN:
            self.part.reported(said, self.now)

    def verdict(self, address: str = FIRST) -> tuple[Verdict, tuple[str, ...]] | None:
        """Return what is thought of an endpoint for as long as it counts."""
        said = self.said.get(address)
        if said is None or self.now - said[1] > said[0].valid_seconds:
            return None
        return said[0].verdict, said[0].reasons

    def page(self) -> str:
        return self.metrics.render().decode()

    def nodes(self) -> list[dict[str, Any]]:
        page: Any = self.part.pages()["/agents"].content({})
        return list(page["nodes"])

    def wait(self, seconds: float) -> None:
        """Let time pass, and have the fleet see that."""
        self.now += seconds
        self.apply(TimePassed())

    def seen(self, address: str = FIRST) -> EndpointView:
        """Return an endpoint as decisions see it."""
        return seen(self.fleet, address, self.now)


def failed(node: str = "gpu-7", sequence: int = 1) -> Report:
    """Return the report of a node whose GPU fell off the bus."""
    return report(gpu(0, Condition.FAILED, "xid_79"), node=node, sequence=sequence)
