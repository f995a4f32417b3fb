"""What is said in the log of clients that are refused: they try again for ever."""

import logging

import pytest

from tidegate.runtime import discovery_log
from tidegate.runtime.discovery_log import MAX_SAID, DiscoveryLog
from tidegate.telemetry.metrics import Metrics
from xds.events import Refused, StreamOpened


@pytest.fixture
def log() -> DiscoveryLog:
    return DiscoveryLog(Metrics(tuple, int))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == discovery_log.logger.name]


def test_a_node_is_said_to_be_refused_once_until_it_is_let_in(
    log: DiscoveryLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(100):
        log(Refused("stranger", "no group takes it"))
    assert said(caplog) == ["envoy refused"]
    log(StreamOpened(1, "stranger", incremental=True, group="edge"))
    log(Refused("stranger", "no group takes it"))
    assert said(caplog) == ["envoy refused", "envoy connected", "envoy refused"]


def test_many_nodes_are_said_to_be_many_and_no_more_is_said(
    log: DiscoveryLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        for number in range(2 * MAX_SAID):
            log(Refused(f"{number}", "no group takes it"))
    assert len(said(caplog)) == MAX_SAID + 1
    assert said(caplog)[-1].startswith("too many nodes are refused")
