"""What is shown of the Envoys that are connected."""

import json

from tests.xds.wire import fleet
from tidegate.runtime.xds_clients import XdsClients
from tidegate.telemetry.metrics import Metrics
from xds.server import DiscoveryServer
from xds.standing import Parked, Standing, StreamStanding
from xds.type_urls import CLUSTER, LISTENER


class Fixed(DiscoveryServer):
    """A server whose clients stand as a test says."""

    def standings(self) -> tuple[StreamStanding, ...]:
        refused = {"l": Parked("9f", "cannot bind")}
        types = (Standing(CLUSTER, 3, waits=False, parked={}), Standing(LISTENER, 1, waits=True, parked=refused))
        return (StreamStanding("edge-1", incremental=True, up_to_date=False, types=types, group="edge"),)


def test_the_page_and_the_metrics_say_who_is_behind_and_what_is_parked() -> None:
    metrics = Metrics(tuple, int)
    shown = XdsClients(Fixed(lambda _: None), metrics)
    (client,) = json.loads(json.dumps(shown.pages()["/xds"].content({})))["clients"]
    assert (client["node"], client["group"], client["variant"]) == ("edge-1", "edge", "delta")
    assert client["up_to_date"] is False
    assert client["types"] == [
        {"type": "Cluster", "held": 3, "waits_for_answer": False, "refused": []},
        {
            "type": "Listener",
            "held": 1,
            "waits_for_answer": True,
            "refused": [{"name": "l", "version": "9f", "reason": "cannot bind"}],
        },
    ]
    text = metrics.render().decode()
    assert "tidegate_xds_clients_behind 1.0" in text
    assert 'tidegate_xds_clients{group="edge"} 1.0' in text
    assert "tidegate_xds_refused_streams_total 0.0" in text
    assert 'tidegate_xds_parked{type="Listener"} 1.0' in text
    assert 'tidegate_xds_parked{type="Cluster"} 0.0' in text


def test_without_clients_there_is_nothing_to_show() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1"}))
    assert XdsClients(server, Metrics(tuple, int)).page() == {"clients": []}
