"""A worker's figures reach the page, and what it had open when it died is closed."""

import inspect

from tests.configurations import parsed
from tidegate.discovery import static
from tidegate.runtime.figures import Figures
from tidegate.runtime.workers.tally import RELAYED, Relay, Tally
from tidegate.telemetry.metrics import Metrics

CONFIG = parsed({"pools": [{"name": "one", "endpoints": [{"address": "10.0.0.1:1"}]}]})


def page() -> Metrics:
    metrics = Metrics(list, int)
    metrics.configure(static.declared(CONFIG).pools)
    return metrics


def count_everything(figures: Figures) -> None:
    for _ in range(3):
        figures.ext_proc_opened()
        figures.received("one")
        figures.picked("one", "10.0.0.1:1", "random")
        figures.tokens_counted("exact", 0.001)
        figures.decided(0.0001)
        figures.queued("one", "interactive")
    figures.unqueued("one", "interactive", "admitted", 1.5)
    figures.wait_foretold("one", -0.5)
    figures.turned_away("one", "batch", "queue_full")
    figures.decided(0.25)
    figures.refused("chat_completions", "invalid_json")
    figures.ext_proc_closed("finished")
    figures.ext_proc_closed("cancelled")


def rendered(metrics: Metrics) -> list[str]:
    return [line for line in metrics.render().decode().splitlines() if not line.startswith("tidegate_process")]


def test_what_two_workers_count_is_what_one_process_would() -> None:
    alone, together = page(), page()
    for _ in range(2):
        count_everything(alone)
        tally, relay = Tally(), Relay(together)
        count_everything(tally)
        relay.count(tally.take())
        assert tally.take() == ()
    assert rendered(together) == rendered(alone)


def test_equal_calls_are_sent_once() -> None:
    tally = Tally()
    for _ in range(1000):
        tally.received("one")
    assert tally.take() == (("received", ("one",), 1000),)


def test_what_a_dead_worker_had_open_is_lost_once() -> None:
    metrics, tally = page(), Tally()
    relay = Relay(metrics)
    count_everything(tally)
    relay.count(tally.take())
    relay.close()
    relay.close()
    text = metrics.render().decode()
    assert "tidegate_ext_proc_inflight_streams 0.0" in text
    assert 'tidegate_ext_proc_streams_total{outcome="failed"} 1.0' in text
    assert 'tidegate_queue_requests{class="interactive",pool="one"} 0.0' in text
    assert 'tidegate_queue_left_total{class="interactive",outcome="failed",pool="one"} 2.0' in text


def test_only_figures_can_be_called() -> None:
    metrics = page()
    before = rendered(metrics)
    Relay(metrics).count([("render", (), 1), ("configure", (), 1), ("__init__", (), 1)])
    assert rendered(metrics) == before


def test_every_figure_is_relayed() -> None:
    figures = {name for name, _ in inspect.getmembers(Figures, inspect.isfunction) if not name.startswith("_")}
    assert {method.__name__ for method in RELAYED} == figures
