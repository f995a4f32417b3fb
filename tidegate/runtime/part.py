"""A part of the control plane: one service of its own, beside the deciding and the publishing."""

import contextlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidegate.certificates import Outgoing
from tidegate.config import Config
from tidegate.fleet.events import FleetChange, FleetEvent, PoolsDeclared
from tidegate.fleet.state import Fleet
from tidegate.runtime.waiting_room import WaitingRoom
from tidegate.sharing.allowance import SharedAllowance
from tidegate.telemetry.admin import Action, Page
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.record import RequestRecord


class Surroundings(NamedTuple):
    """What a part is given.

    Attributes:
        fleet: what is known; to be read only.
        apply: takes in a fact; the one way in which a part changes the fleet.
        metrics: where it counts.
        config: the configuration that it begins with. What listens keeps to that; the rest follows.
        readjust: has every part's ``adjusted`` asked again, and what comes of it taken over.
        waiting_room: where requests wait, if it is this process that decides.
        shared: what counts for all replicas, through Redis, if anything does.
        to_engines: says how to connect to endpoints that speak TLS, by address.
    """

    fleet: Fleet
    apply: Callable[[FleetEvent], None]
    metrics: Metrics
    config: Config
    readjust: Callable[[], None]
    waiting_room: WaitingRoom | None = None
    shared: SharedAllowance | None = None
    to_engines: Callable[[Config, PoolsDeclared], Mapping[str, Outgoing]] = lambda *_: {}


class Part:
    """One part. What it does not need it leaves as it is here."""

    def listening(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Listen for as long as the block runs.

        Raises:
            BindError: a port cannot be bound.
        """
        return contextlib.nullcontext()

    def adjusted(self, config: Config) -> Config:
        """Return ``config``, as the file says it, with what has to be different meanwhile."""
        return config

    def follow(self, config: Config, declared: PoolsDeclared) -> None:
        """Take over ``config``, and the pools with all that discovery found. Called at the start and at each change."""

    async def run(self) -> None:
        """Do what is to be done all the time, until cancelled; or return, where there is nothing."""

    def changed(self, change: FleetChange) -> None:
        """Take note of a change of the fleet."""

    def ended(self, record: RequestRecord) -> None:
        """Take note of the end of a request."""

    def pages(self) -> Mapping[str, Page]:
        """Return its admin pages by path."""
        return {}

    def actions(self) -> Mapping[str, Action]:
        """Return what can be done by hand, by path."""
        return {}
