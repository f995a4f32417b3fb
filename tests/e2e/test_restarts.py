"""Envoy and the control plane killed and started again in every order; requests flow, and the directory is away."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.apart import GONE, Apart, Edge, apart
from tests.e2e.echoing_engine import echoing
from tests.e2e.stack import until
from tests.e2e.test_discovery import discovering, write


class Flow:
    """Requests that are sent without a pause, and what Envoy knows meanwhile."""

    def __init__(self, edge: Edge, places: set[str]) -> None:
        self._edge = edge
        self._places = places
        self.statuses: Counter[int] = Counter()
        self.asked = [0, 0]
        self.shrunk: list[set[str]] = []
        self._over = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._look)]
        threads += [threading.Thread(target=self._ask, args=(at,)) for at in range(len(self.asked))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _ask(self, at: int) -> None:
        while not self._over.wait(0.02):
            self.statuses[self._edge.ask()[0]] += 1
            self.asked[at] += 1

    def _look(self) -> None:
        """Look at what an Envoy that serves knows: never less than everybody."""
        while not self._over.wait(0.1):
            # What cannot be asked, or not to the end, has just been killed.
            with contextlib.suppress(*GONE, IndexError):
                if self._edge.ready() and (known := self._edge.members()) != self._places:
                    self.shrunk.append(known)

    def good(self, what: str) -> None:
        """Wait until requests are answered, and see that from then on all are."""
        until(lambda: self._edge.ask()[0] == 200, 60, f"requests are answered: {what}")
        # What was sent before that may yet fail, but not what is sent after it has ended.
        self._more(2)
        self.statuses.clear()
        self._more(10)
        assert {*self.statuses} == {200}, (what, self.statuses)

    def _more(self, requests: int) -> None:
        wanted = [asked + requests for asked in self.asked]
        until(lambda: all(a >= b for a, b in zip(self.asked, wanted, strict=True)), 60, "requests flow")


def test_in_whatever_order_envoy_and_the_control_plane_come_back_everybody_is_there_and_requests_flow(
    tmp_path: Path,
) -> None:
    file = tmp_path / "endpoints.yaml"
    config = discovering(file={"path": str(file)})
    config["pools"][0]["engine"] = "none"
    config["control"]["state_dir"] = str(tmp_path / "state")
    with echoing() as one, echoing() as two, apart(tmp_path, config) as parts:
        write(file, one, two)
        edge = parts.envoy()
        parts.start()
        edge.start()
        until(edge.ready, 60, "Envoy has its configuration")
        until((tmp_path / "state" / "endpoints.json").exists, 20, "what was found is kept")
        file.unlink()
        flow = Flow(edge, {f"127.0.0.1:{port}" for port in (one, two)})
        with flow.running():
            flow.good("at the start")
            _first_the_control_plane(parts, edge, flow)
            _first_envoy(parts, edge, flow)
        assert flow.shrunk == []
        until(lambda: parts.total("tidegate_inflight_requests") == 0, 20, "nothing is in flight")
        assert parts.total("tidegate_xds_parked") == 0


def _first_the_control_plane(parts: Apart, edge: Edge, flow: Flow) -> None:
    parts.kill()
    parts.start()
    flow.good("the control plane came back, and Envoy had not left")
    edge.kill()
    edge.start()
    flow.good("Envoy came back last")


def _first_envoy(parts: Apart, edge: Edge, flow: Flow) -> None:
    parts.kill()
    edge.kill()
    edge.start()
    # It has nothing to serve by, and does not pretend to.
    until(lambda: "xds" in _clusters(edge), 60, "Envoy is up")
    assert not edge.ready()
    assert edge.ask()[0] == 0
    parts.start()
    flow.good("the control plane came back last")


def _clusters(edge: Edge) -> set[str]:
    with contextlib.suppress(*GONE):
        return edge.pools() | {"xds"}
    return set()
