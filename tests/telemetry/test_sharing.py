"""How it stands with the Redis that limits are shared through, on the metrics page."""

from prometheus_client import CollectorRegistry, generate_latest

from tidegate.telemetry.sharing import SharingFigures


def test_everything_about_redis_is_on_the_page() -> None:
    registry = CollectorRegistry()
    figures = SharingFigures(registry)
    figures.watch(lambda: (False, "timeout", 3, 4))
    figures.called("ok", 0.0015)
    figures.called("timeout", 0.02)
    figures.forgot()
    figures.decided_alone()
    figures.decided_alone()
    page = generate_latest(registry).decode().splitlines()
    assert {
        "tidegate_redis_shared 0.0",
        "tidegate_redis_replicas 3.0",
        "tidegate_redis_parts 4.0",
        'tidegate_redis_calls_total{outcome="ok"} 1.0',
        'tidegate_redis_calls_total{outcome="timeout"} 1.0',
        'tidegate_redis_call_seconds_bucket{le="0.001"} 0.0',
        'tidegate_redis_call_seconds_bucket{le="0.002"} 1.0',
        "tidegate_redis_call_seconds_count 1.0",
        "tidegate_redis_decided_alone_total 2.0",
        "tidegate_redis_losses_total 1.0",
    } <= set(page)
