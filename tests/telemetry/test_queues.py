from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from tidegate.scheduling.line import Standing
from tidegate.telemetry.labels import Configured
from tidegate.telemetry.queues import QueueCollector, QueueFigures, describe

STANDINGS = (Standing("a", False, 3, 300, 30, 1.23456, 2), Standing("a", True, 0, 0, 0, 0.0, 2))


def figures() -> tuple[QueueFigures, CollectorRegistry]:
    registry, pools = CollectorRegistry(), Configured()
    pools.replace(["a"])
    return QueueFigures(registry, pools), registry


def test_what_waits_is_counted_in_and_out() -> None:
    made, registry = figures()
    for _ in range(3):
        made.queued("a", "interactive")
    made.unqueued("a", "interactive", "admitted", 2.0)
    made.unqueued("a", "interactive", "cancelled", 1.0)
    made.turned_away("a", "batch", "queue_full")
    value = registry.get_sample_value
    labels = {"pool": "a", "class": "interactive"}
    assert value("tidegate_queue_requests", labels) == 1
    assert value("tidegate_queue_entered_total", labels) == 3
    assert value("tidegate_queue_left_total", {**labels, "outcome": "cancelled"}) == 1
    assert value("tidegate_queue_left_total", {"pool": "a", "class": "batch", "outcome": "queue_full"}) == 1
    assert value("tidegate_queue_wait_seconds_count", labels) == 1, "of those alone that got room"
    assert value("tidegate_queue_wait_seconds_sum", labels) == 2.0


def test_waits_that_were_foretold_too_long_and_too_short_are_told_apart() -> None:
    made, registry = figures()
    made.wait_foretold("a", 2.0)
    made.wait_foretold("a", -0.5)
    for side, error in (("over", 2.0), ("under", 0.5)):
        labels = {"pool": "a", "side": side}
        assert registry.get_sample_value("tidegate_queue_estimate_error_seconds_sum", labels) == error


def test_a_pool_that_is_not_configured_gets_no_series_of_its_own() -> None:
    made, registry = figures()
    made.queued("stranger", "interactive")
    assert b"stranger" not in generate_latest(registry)
    assert len(made.queue_families()) == 5


def test_tokens_bytes_and_age_are_read_when_they_are_asked_for() -> None:
    registry = CollectorRegistry()
    registry.register(QueueCollector(lambda: STANDINGS))
    labels = {"pool": "a", "class": "interactive"}
    assert registry.get_sample_value("tidegate_queue_tokens", labels) == 300
    assert registry.get_sample_value("tidegate_queue_bytes", labels) == 30
    assert registry.get_sample_value("tidegate_queue_oldest_seconds", labels) == 1.23456
    assert registry.get_sample_value("tidegate_queue_tokens", {"pool": "a", "class": "batch"}) == 0
    assert registry.get_sample_value("tidegate_queue_kept_places", {"pool": "a"}) == 2


def test_the_page_has_a_pool_with_its_classes_and_its_rate() -> None:
    page: Any = describe(STANDINGS, lambda _: 99.5)
    (queue,) = page["queues"]
    assert (queue["pool"], queue["tokens_per_second"]) == ("a", 99.5)
    assert [one["class"] for one in queue["classes"]] == ["interactive", "batch"]
    assert queue["classes"][0]["oldest_seconds"] == 1.235
    assert queue["kept_places"] == 2
