"""Pools as the fleet shows them, for pages and gauges."""

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.health import Reachability
from tidegate.fleet.view import EndpointView, PoolView

KNOWN = EndpointView(
    address="10.0.0.1:8000",
    weight=2,
    reachability=Reachability.REACHABLE,
    ejected=False,
    inflight_requests=3,
    inflight_tokens=4200,
    requests=5.0,
    tokens=6000.0,
    running=4.0,
    waiting=1.0,
    kv_usage=0.25,
    report_age=0.75,
)
SILENT = EndpointView(
    address="[fd00::7]:8000",
    weight=1,
    reachability=Reachability.UNKNOWN,
    ejected=False,
    inflight_requests=0,
    inflight_tokens=0,
    requests=0.0,
    tokens=0.0,
    running=None,
    waiting=None,
    kv_usage=None,
    report_age=None,
)
DEAD = SILENT._replace(address="10.0.0.2:8000", reachability=Reachability.UNREACHABLE, ejected=True, report_age=9.0)


def pool(*endpoints: EndpointView, name: str = "default") -> PoolView:
    return PoolView(name, "vllm", ("*",), endpoints)


def spec(name: str = "default", *addresses: str, models: tuple[str, ...] = ("*",)) -> PoolSpec:
    return PoolSpec(name, "vllm", models, tuple(EndpointSpec(address) for address in addresses))
