"""What is counted, as Prometheus reads it back from the page."""

from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from protos import access_log_pb2 as pb
from tests.telemetry.entries import DECISION, entry, usage
from tests.telemetry.fleets import DEAD, KNOWN, SILENT, pool, spec
from tidegate.fleet.view import PoolView
from tidegate.telemetry.metrics import MAX_MODELS, Metrics
from tidegate.telemetry.output_size import OutputSizes
from tidegate.telemetry.record import parse
from tidegate.tokens.correction import Ratio

FIRST, SECOND = "10.0.0.1:8000", "10.0.0.2:8000"


class Page:
    """The samples of one page."""

    def __init__(self, metrics: Metrics) -> None:
        self.families = list(text_string_to_metric_families(metrics.render().decode()))
        self.samples = [sample for family in self.families for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float | None:
        found = [s.value for s in self.samples if s.name == f"tidegate_{name}" and labels.items() <= s.labels.items()]
        return sum(found) if found else None

    def values(self, name: str, label: str) -> set[str]:
        return {s.labels[label] for s in self.samples if s.name == f"tidegate_{name}"}


def make(views: Sequence[PoolView] = (), reservations: int = 0) -> Metrics:
    metrics = Metrics(lambda: views, lambda: reservations)
    metrics.configure([spec("default", FIRST, SECOND)])
    return metrics


def end(metrics: Metrics, **changes: Any) -> None:
    metrics.request_ended(parse(entry(**{"tokens": usage(), **changes})))


def test_every_name_begins_with_tidegate_and_none_is_created() -> None:
    metrics = make([pool(KNOWN)])
    end(metrics)
    page = Page(metrics)
    assert all(sample.name.startswith("tidegate_") for sample in page.samples)
    assert all(family.documentation for family in page.families)
    assert not [sample.name for sample in page.samples if sample.name.endswith("_created")]
    assert page("process_resident_memory_bytes")


def test_a_good_streamed_answer_is_counted_with_its_tokens_and_latencies() -> None:
    metrics = make()
    end(metrics)
    page = Page(metrics)
    labels = {"pool": "default", "model": "llama", "api": "chat_completions", "code": "200", "outcome": "ok"}
    assert page("requests_total", **labels) == 1
    assert page("prompt_tokens_total", pool="default", model="llama") == 110
    assert page("completion_tokens_total", pool="default", model="llama") == 21
    assert page("cached_prompt_tokens_total", pool="default", model="llama") == 64
    assert page("prompt_tokens_estimated_total", pool="default", source="exact") == 100
    assert page("time_to_first_token_seconds_sum") == pytest.approx(0.5)
    assert page("time_per_output_token_seconds_sum") == pytest.approx(0.1)
    assert page("request_duration_seconds_sum") == pytest.approx(2.5)
    assert page("usage_unknown_total") is page("retries_total") is page("failovers_total") is None


def test_an_answer_without_usage_counts_no_tokens_but_is_counted_as_unknown() -> None:
    metrics = make()
    end(metrics, tokens=None)
    page = Page(metrics)
    assert page("usage_unknown_total", pool="default") == 1
    assert page("prompt_tokens_total") is page("prompt_tokens_estimated_total") is None
    assert page("time_per_output_token_seconds_count") is None


def test_tokens_that_were_not_told_are_counted_apart_as_estimates() -> None:
    metrics = make()
    metrics.request_ended(OutputSizes().settled(parse(entry(tokens=None, size=2_000))))
    page = Page(metrics)
    assert page("unreported_tokens_total", pool="default", model="llama", kind="output") == 10
    assert page("unreported_tokens_total", pool="default", model="llama", kind="prompt") == 100
    assert page("completion_tokens_total") is page("prompt_tokens_total") is None
    end(metrics)
    assert Page(metrics)("unreported_tokens_total") == 110


def test_tokens_of_reasoning_are_counted() -> None:
    metrics = make()
    end(metrics, tokens=usage(reasoning=8))
    assert Page(metrics)("reasoning_tokens_total", pool="default", model="llama") == 8


@pytest.mark.parametrize(("over", "counted"), [(True, None), (False, 1), (None, 1)])
def test_an_answer_to_be_read_that_was_not_is_counted(over: bool | None, counted: int | None) -> None:
    metrics = make()
    answer = None if over is None else {"over": over, "bytes": 10, "output_tokens": 1}
    end(metrics, decision={**DECISION, "read": True}, answer=answer)
    end(metrics, decision=DECISION, answer=answer)
    assert Page(metrics)("answers_read_in_part_total", pool="default") == counted


def test_an_answer_that_is_not_streamed_has_no_time_to_first_token() -> None:
    metrics = make()
    end(metrics, decision={**DECISION, "stream": False})
    page = Page(metrics)
    assert page("time_to_first_token_seconds_count") is None
    assert page("request_duration_seconds_count") == 1


def test_a_fast_error_is_in_no_histogram() -> None:
    metrics = make()
    end(metrics, status=503, seconds=0.001, tokens=None)
    page = Page(metrics)
    assert page("requests_total", code="503", outcome="upstream_error") == 1
    assert page("request_duration_seconds_count") is page("time_to_first_token_seconds_count") is None
    assert page("usage_unknown_total") is None


def test_a_client_that_left_halfway_has_a_time_to_first_token_but_no_duration() -> None:
    metrics = make()
    end(metrics, flags=("downstream_connection_termination",), tokens=None)
    page = Page(metrics)
    assert page("time_to_first_token_seconds_count") == 1
    assert page("request_duration_seconds_count") is None
    assert page("usage_unknown_total") == 1


def test_an_answer_of_our_own_is_a_request_that_went_well_and_tells_nothing_of_any_engine() -> None:
    metrics = make()
    end(metrics, decision={"api": "models"}, destinations=None, tokens=None, served=None, attempts=0)
    page = Page(metrics)
    assert page("requests_total", api="models", code="200", outcome="ok") == 1
    assert page("usage_unknown_total") is page("request_duration_seconds_count") is None


def test_usage_is_not_missed_where_an_api_tells_none() -> None:
    metrics = make()
    end(metrics, decision={**DECISION, "api": "tokenize", "usage": "none"}, tokens=None)
    end(metrics, decision={**DECISION, "usage": "messages"}, tokens=None)
    assert Page(metrics)("usage_unknown_total", pool="default") == 1


def test_a_request_that_went_on_without_a_decision_is_counted_apart() -> None:
    metrics = make()
    end(metrics, decision=None, destinations=None, tokens=None, route="default/open", unread="llama")
    end(metrics, route="default/open")  # somebody decided on this one
    end(metrics, decision=None, destinations=None, tokens=None, route="default/closed", attempts=0, status=503)
    page = Page(metrics)
    assert page("failed_open_total", pool="default") == 1
    assert page("requests_total", pool="default", model="llama", api="other", code="200", outcome="ok") == 1
    assert page("usage_unknown_total") is None


def test_a_retry_elsewhere_is_a_retry_and_a_failover() -> None:
    metrics = make()
    end(metrics, attempts=3, served=("10.0.0.2", 8000))
    page = Page(metrics)
    assert page("retries_total", pool="default") == 2
    assert page("failovers_total", pool="default") == 1


def test_an_entry_of_which_nothing_is_known_is_still_counted() -> None:
    metrics = make()
    metrics.request_ended(parse(pb.HTTPAccessLogEntry()))
    assert Page(metrics)("requests_total", pool="other", model="other", api="other", code="0") == 1


def test_model_names_beyond_the_limit_are_folded_and_pages_stay_bounded() -> None:
    metrics = make()
    for number in range(MAX_MODELS * 3):
        end(metrics, decision={**DECISION, "model": f"model-{number}"})
    page = Page(metrics)
    assert len(page.values("requests_total", "model")) == MAX_MODELS + 1
    assert page("requests_total", model="other") == MAX_MODELS * 2
    assert page("requests_total") == MAX_MODELS * 3


def test_a_model_that_never_answered_gets_no_series_unless_it_is_configured() -> None:
    metrics = Metrics(list, int)
    metrics.configure([spec("default", FIRST, models=("llama", "qwen*"))], ["routed", "r*"])
    for name in ("llama", "routed", "invented", "r*"):
        end(metrics, decision={**DECISION, "model": name}, status=404, tokens=None)
    assert Page(metrics).values("requests_total", "model") == {"llama", "routed", "other"}


def test_hostile_label_values_leave_the_page_readable() -> None:
    metrics = make()
    hostile = ['a",tenant="b', "new\nline", "\x1b[2J\r", "back\\slash", "{0.__class__} %n", "\u2028\u202e", "x" * 500]
    for name in hostile:
        end(metrics, decision={**DECISION, "model": name, "api": name})
    metrics.refused("\ud800", '}\n# TYPE tidegate_x gauge\ntidegate_x{a="')
    metrics.picked('default"', FIRST + "\n", "p\n")
    page = Page(metrics)
    models = page.values("requests_total", "model")
    assert {'a",tenant="b', "back\\slash", "{0.__class__} %n", "x" * 128} <= models
    assert len(models) == len(hostile)
    assert all(value.isprintable() for value in models)
    assert page("x") is None
    assert page("picks_total", pool="other", endpoint="other") == 1


def test_incoming_requests_are_zero_before_the_first_and_survive_a_reload() -> None:
    metrics = make()
    assert Page(metrics)("incoming_requests_total", pool="default") == 0
    metrics.received("default")
    metrics.received("")
    metrics.configure([spec("default"), spec("second", SECOND)])
    page = Page(metrics)
    assert page("incoming_requests_total", pool="default") == 1
    assert page("incoming_requests_total", pool="second") == 0
    assert page("incoming_requests_total", pool="other") == 1


def test_the_series_of_removed_endpoints_and_pools_are_gone() -> None:
    metrics = Metrics(list, int)
    metrics.configure([spec("default", FIRST, SECOND), spec("second", "10.0.0.3:8000")])
    for address in (FIRST, SECOND):
        metrics.picked("default", address, "least_tokens")
    metrics.picked("second", "10.0.0.3:8000", "random")
    end(metrics, decision={**DECISION, "pool": "second"})
    metrics.configure([spec("default", FIRST)])
    page = Page(metrics)
    assert page.values("picks_total", "endpoint") == {FIRST}
    assert not [sample for sample in page.samples if sample.labels.get("pool") == "second"]
    metrics.picked("default", SECOND, "least_tokens")
    assert Page(metrics)("picks_total", endpoint="other") == 1


def test_endpoint_gauges_show_the_fleet_and_leave_out_what_is_unknown() -> None:
    page = Page(make([pool(KNOWN, SILENT, DEAD)], reservations=4))
    known = {"pool": "default", "endpoint": KNOWN.address}
    for name, value in {
        "inflight_requests": 3,
        "inflight_tokens": 4200,
        "endpoint_requests": 5,
        "endpoint_tokens": 6000,
        "endpoint_running": 4,
        "endpoint_waiting": 1,
        "endpoint_kv_usage_ratio": 0.25,
        "scrape_age_seconds": 0.75,
        "endpoint_up": 1,
        "endpoint_ejected": 0,
    }.items():
        assert page(name, **known) == value
    for name in (
        "endpoint_running",
        "endpoint_waiting",
        "endpoint_kv_usage_ratio",
        "scrape_age_seconds",
        "endpoint_up",
    ):
        assert page(name, endpoint=SILENT.address) is None
    assert page("inflight_requests", endpoint=SILENT.address) == 0
    assert page("endpoint_up", endpoint=DEAD.address) == 0
    assert page("endpoint_ejected", endpoint=DEAD.address) == 1
    assert page("inflight_reservations") == 4


def test_endpoint_gauges_follow_the_fleet_from_page_to_page() -> None:
    views: list[PoolView] = [pool(KNOWN, DEAD)]
    metrics = Metrics(lambda: views, int)
    assert Page(metrics).values("inflight_requests", "endpoint") == {KNOWN.address, DEAD.address}
    views[:] = [pool(KNOWN)]
    assert Page(metrics).values("inflight_requests", "endpoint") == {KNOWN.address}


def test_streams_that_are_open_are_counted_up_and_down() -> None:
    metrics = make()
    metrics.ext_proc_opened()
    metrics.ext_proc_opened()
    metrics.ext_proc_closed("decided")
    metrics.xds_opened()
    metrics.xds_opened()
    metrics.xds_closed()
    page = Page(metrics)
    assert page("ext_proc_inflight_streams") == 1
    assert page("ext_proc_streams_total", outcome="decided") == 1
    assert page("xds_open_streams") == 1


def test_every_gauge_of_what_is_in_flight_is_zero_on_an_idle_control_plane() -> None:
    metrics = make([pool(SILENT)])
    metrics.xds_opened()  # a connected Envoy is no work in flight
    inflight = [sample for sample in Page(metrics).samples if "inflight" in sample.name]
    assert len(inflight) == 4
    assert [sample.value for sample in inflight] == [0, 0, 0, 0]


def test_what_happens_in_the_control_plane_is_counted() -> None:
    metrics = make()
    metrics.refused("chat_completions", "unknown_model")
    metrics.tokens_counted("exact", 0.002)
    metrics.decided(0.0004)
    metrics.xds_pushed("cluster")
    metrics.xds_acked("cluster")
    metrics.xds_nacked("listener")
    metrics.scraped("ok", 0.004)
    metrics.reservation_expired()
    metrics.access_log_malformed()
    page = Page(metrics)
    assert page("refusals_total", api="chat_completions", reason="unknown_model") == 1
    assert page("token_counts_total", source="exact") == 1
    assert page("token_count_seconds_bucket", le="0.0025") == 1
    assert page("token_count_seconds_bucket", le="0.001") == 0
    assert page("decision_seconds_bucket", le="0.0005") == 1
    assert page("decision_seconds_bucket", le="0.00025") == 0
    assert page("xds_pushes_total", type="cluster") == page("xds_acks_total", type="cluster") == 1
    assert page("xds_nacks_total", type="listener") == 1
    assert page("scrape_total", outcome="ok") == page("scrape_duration_seconds_count") == 1
    assert page("reservations_expired_total") == page("access_log_malformed_total") == 1


def test_the_last_reload_says_whether_the_file_is_in_force() -> None:
    metrics = make()
    assert Page(metrics)("config_last_reload_success") == 1
    metrics.config_reloaded(False)
    assert Page(metrics)("config_last_reload_success") == 0
    metrics.config_reloaded(True)
    page = Page(metrics)
    assert page("config_last_reload_success") == 1
    assert page("config_reloads_total", result="failure") == page("config_reloads_total", result="success") == 1


def test_corrections_of_known_pools_and_models_are_shown_and_others_left_out() -> None:
    corrections = [Ratio("default", "llama", 1.25), Ratio("default", "unseen", 2.0), Ratio("gone", "llama", 3.0)]
    metrics = Metrics(list, int, corrections)
    metrics.configure([spec("default", FIRST)])
    assert Page(metrics)("token_correction_ratio") is None, "no model has answered yet"
    end(metrics)
    page = Page(metrics)
    assert page("token_correction_ratio", pool="default", model="llama") == 1.25
    assert page.values("token_correction_ratio", "model") == {"llama"}
    assert page.values("token_correction_ratio", "pool") == {"default"}


def test_two_instances_share_nothing() -> None:
    first, second = make(), make()
    end(first)
    assert Page(second)("requests_total") is None
