"""What happens on the discovery streams, as metrics and log lines."""

import logging

from tidegate.telemetry.log import event
from tidegate.telemetry.metrics import Metrics
from xds.events import Acked, DiscoveryEvent, Pushed, Refused, Rejected, StreamClosed, StreamOpened
from xds.type_urls import short

MAX_SAID = 1000
"""Nodes whose refusal is said, once each. They try again for ever; ``tidegate_xds_refused_streams_total`` goes on."""

logger = logging.getLogger("tidegate.xds")


class DiscoveryLog:
    """Takes note of discovery events."""

    def __init__(self, metrics: Metrics) -> None:
        """Count into ``metrics``."""
        self._metrics = metrics
        self._refused: set[str] = set()

    def __call__(self, happened: DiscoveryEvent) -> None:
        """Take note of one event."""
        match happened:
            case Refused():
                self._turned_away(happened)
            case StreamOpened():
                self._refused.discard(happened.node)
                self._metrics.xds_opened()
                group = happened.group or "-"
                event(logger, "envoy connected", node=happened.node, group=group, delta=happened.incremental)
            case StreamClosed():
                self._metrics.xds_closed()
                if happened.error:
                    event(logger, "stream failed", level=logging.ERROR, node=happened.node, reason=happened.error)
                else:
                    event(logger, "envoy left", node=happened.node)
            case Pushed():
                self._metrics.xds_pushed(short(happened.type_url))
            case Acked():
                self._metrics.xds_acked(short(happened.type_url))
            case Rejected():
                self._metrics.xds_nacked(short(happened.type_url))
                event(
                    logger,
                    "envoy rejected configuration",
                    level=logging.ERROR,
                    node=happened.node,
                    type=short(happened.type_url),
                    names=", ".join(happened.versions),
                    reason=happened.message,
                )

    def _turned_away(self, refused: Refused) -> None:
        if refused.node in self._refused or len(self._refused) > MAX_SAID:
            return
        self._refused.add(refused.node)
        if len(self._refused) > MAX_SAID:
            event(logger, "too many nodes are refused to name them, they are only counted", level=logging.ERROR)
        else:
            event(logger, "envoy refused", level=logging.ERROR, node=refused.node, reason=refused.reason)
