"""What Envoy is told for it to say how attempts end."""

from tests.xds.fleets import config
from tidegate.config import Config
from tidegate.fleet.error_texts import TEXTS
from xds.access_log import access_log, attempts_log
from xds.clusters import pool_cluster
from xds.endings import program
from xds.names import ENDING_HEADER
from xds.resources import resources
from xds.routes import route_configuration
from xds.type_urls import CLUSTER


def test_the_program_knows_all_texts_and_has_no_gaps() -> None:
    source = program(60.0)
    assert all(f'"{text}"' in source for texts in TEXTS.values() for text in texts)
    assert "%(" not in source


def test_each_pool_counts_comments_by_its_own_patience() -> None:
    made = config("a", "b").model_dump()
    made["pools"][0]["idle_timeout_seconds"] = 7.0
    clusters = {one.name: one for one in resources(Config.model_validate(made)) if one.type_url == CLUSTER}
    assert b"STILL, MOST = 7000, 3500 " in clusters["a"].body
    assert b"STILL, MOST = 300000, 150000 " in clusters["b"].body


def test_attempts_and_requests_go_into_one_log() -> None:
    """Envoy keeps one stream for loggers of the same settings, and so the order of what is logged."""
    assert attempts_log().typed_config == access_log().typed_config
    assert attempts_log().filter != access_log().filter


def test_retries_are_a_share_of_the_requests() -> None:
    (thresholds,) = pool_cluster(config("a").pools[0], 60.0).circuit_breakers.thresholds  # type: ignore[union-attr]
    assert thresholds.max_retries is None
    assert thresholds.retry_budget is not None
    assert thresholds.retry_budget.budget_percent is not None
    assert (thresholds.retry_budget.budget_percent.value, thresholds.retry_budget.min_retry_concurrency) == (20, 10)


def test_what_attempts_said_is_not_for_clients() -> None:
    assert ENDING_HEADER in route_configuration(config("a")).response_headers_to_remove


def test_a_pool_may_have_a_patience_of_its_own() -> None:
    made = config("a", "b").model_dump()
    made["pools"][0]["idle_timeout_seconds"] = 7.0
    routes = route_configuration(Config.model_validate(made)).virtual_hosts[0].routes
    told = {one.route.cluster: one.route.idle_timeout for one in routes if one.route is not None}
    assert (told["a"].total_seconds(), told["b"].total_seconds()) == (7.0, 300.0)  # type: ignore[union-attr]
