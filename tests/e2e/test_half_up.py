"""A fleet of which a part is not up when it starts."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.stack import configuration, engines, fetch, up
from tests.ports import free_port


def test_a_burst_on_a_fleet_that_is_half_up_is_served_as_soon_as_it_is_ready(tmp_path: Path) -> None:
    """One endpoint is not there: whoever were sent to it would be retried, and more at once than the budget lets be."""
    dead = free_port()
    with engines(tmp_path, "h100") as ports, ThreadPoolExecutor(8) as clients:
        config = configuration([*ports, dead])
        # Several failures in a row take a while: no burst is to wait for that, and none to pay for it.
        config["scrape"] = {"interval_seconds": 10}
        with up(tmp_path, config) as stack:
            assert fetch(f"{stack.admin}/readyz")[0] == 200
            statuses = [status for status, _, _ in clients.map(stack.ask, [f"burst {number}" for number in range(8)])]
            assert statuses == [200] * 8
            stack.settle()
            assert stack.total("tidegate_failed_attempts_total", endpoint=f"127.0.0.1:{dead}") == 0
            _, page, _ = fetch(f"{stack.admin}/status")
            reached = {one["address"]: one["reachability"] for one in page["pools"][0]["endpoints"]}
            assert reached == {f"127.0.0.1:{ports[0]}": "reachable", f"127.0.0.1:{dead}": "unreached"}
