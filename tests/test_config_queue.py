import pytest

from tests.configurations import changed, faults, parsed
from tidegate.config_queue import Queue, longest_wait
from tidegate.scheduling.queue import UNBOUNDED, Bounds


def test_a_pool_queues_unless_it_is_told_not_to() -> None:
    assert Queue().enabled
    assert Queue().longest_seconds == 300.0
    assert Queue(enabled=False).longest_seconds == 0.0


def test_envoy_is_to_be_as_patient_as_the_longest_of_all_waits() -> None:
    short, long = Queue(max_wait_seconds=5.0, batch_max_wait_seconds=2.0), Queue(batch_max_wait_seconds=60.0)
    assert longest_wait([short, long]) == 60.0
    assert longest_wait([short, Queue(enabled=False)]) == 5.0
    assert longest_wait([]) == 0.0


@pytest.mark.parametrize(("processes", "most"), [(1, 1000), (3, 334), (2000, 1)])
def test_processes_have_the_bounds_between_them_and_each_at_least_one(processes: int, most: int) -> None:
    bounds = Queue().settings({}, processes).bounds
    assert bounds.requests == most
    assert bounds.tenant_requests >= UNBOUNDED // processes


def test_everything_that_is_set_arrives() -> None:
    queue = Queue(
        max_requests=10,
        max_tokens=20,
        max_bytes=2048,
        max_requests_per_tenant=4,
        max_tokens_per_tenant=5,
        max_wait_seconds=6.0,
        batch_max_wait_seconds=7.0,
        batch_share=0.5,
        kept_share=0.2,
        ageing_seconds=8.0,
        max_running=9,
    )
    settings = queue.settings({"acme": 2.0}, 1)
    assert settings.bounds == Bounds(10, 20, 2048, 4, 5)
    assert (settings.max_wait_seconds, settings.batch_max_wait_seconds, settings.ageing_seconds) == (6.0, 7.0, 8.0)
    assert settings.kept_share == 0.2
    assert (settings.batch_share, settings.max_running, settings.weights) == (0.5, 9, (("acme", 2.0),))


@pytest.mark.parametrize(("key", "most"), [("max_requests", 1_000), ("max_tokens", 50_000_000)])
def test_one_tenant_is_not_promised_more_than_there_is_for_all(key: str, most: int) -> None:
    (line,) = faults(changed("pools.0.queue", {f"{key}_per_tenant": most + 1}))
    assert line == f"pools[0].queue: expected {key}_per_tenant of at most {key}, {most}, not {most + 1}"
    assert parsed(changed("pools.0.queue", {f"{key}_per_tenant": most + 1, key: most + 1}))
