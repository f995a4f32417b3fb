"""The /metrics page: vLLM's names, labels and types, and figures that fit together."""

import math
import re

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.simulator.engines import SMALL, engine_request, run_to_end, serving, settings, small_engine
from tidegate.simulator import metrics_page
from tidegate.simulator.batching import BatchingEngine
from tidegate.simulator.settings import EngineSettings, MetricsNames


def _page(engine: BatchingEngine, names: MetricsNames = "current") -> str:
    given = EngineSettings(port=0, profile=SMALL, model="tiny", metrics_names=names)
    return metrics_page.render(given, engine.gauges, engine.counters, 1_795_976_061.85)


def _loaded_engine() -> BatchingEngine:
    engine = small_engine(max_num_seqs=2)
    for at in range(4):
        engine.submit([engine_request(f"r{at}", prompt=40, output=4, prefix="p")], 0.0)
    run_to_end(engine)
    engine.submit([engine_request(name, prompt=100, output=4) for name in "abc"], 9.0)
    engine.begin(9.0)
    return engine


def _samples(page: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def test_the_gauges_say_what_the_engine_holds() -> None:
    samples = _samples(_page(_loaded_engine()))
    labels = '{engine="0",model_name="tiny"}'
    assert samples[f"vllm:num_requests_running{labels}"] == 1
    assert samples[f"vllm:num_requests_waiting{labels}"] == 2
    assert samples['vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"}'] == 2
    assert samples[f"vllm:kv_cache_usage_perc{labels}"] == pytest.approx(4 / 32)


def test_the_counters_say_what_it_did() -> None:
    samples = _samples(_page(_loaded_engine()))
    labels = '{engine="0",model_name="tiny"}'
    assert samples[f"vllm:prompt_tokens_total{labels}"] == 160
    assert samples[f"vllm:generation_tokens_total{labels}"] == 16
    assert samples[f"vllm:prompt_tokens_cached_total{labels}"] == 3 * 32
    sources = [
        samples[f'vllm:prompt_tokens_by_source_total{{engine="0",model_name="tiny",source="{source}"}}']
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
    ]
    assert sources == [64, 96, 0]
    assert samples['vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'] == 4


@pytest.mark.parametrize("names", ["current", "old"])
def test_every_family_can_be_parsed_and_histograms_add_up(names: MetricsNames) -> None:
    families = {family.name: family for family in text_string_to_metric_families(_page(_loaded_engine(), names))}
    histograms = [family for family in families.values() if family.type == "histogram"]
    assert len(histograms) >= 12
    for family in histograms:
        buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
        (count,) = [sample.value for sample in family.samples if sample.name.endswith("_count")]
        assert [sample.value for sample in buckets] == sorted(sample.value for sample in buckets)
        assert buckets[-1].labels["le"] == "+Inf"
        assert buckets[-1].value == count
        assert count > 0, family.name
        bounds = [float(sample.labels["le"]) for sample in buckets]
        assert bounds == sorted(bounds)
        assert bounds[-1] == math.inf


def test_created_gauges_tell_when_the_counters_began() -> None:
    page = _page(_loaded_engine())
    assert "# TYPE vllm:prompt_tokens_created gauge" in page
    assert 'vllm:prompt_tokens_created{engine="0",model_name="tiny"} 1795976061.85' in page


def test_the_cache_is_described_in_labels() -> None:
    (line,) = re.findall(r"^vllm:cache_config_info.*$", _page(small_engine()), re.MULTILINE)
    assert 'block_size="16"' in line
    assert 'num_gpu_blocks="33"' in line
    assert 'num_gpu_blocks_override="None"' in line
    assert line.endswith("} 1.0")


def test_the_old_names_stand_in_for_the_new_ones() -> None:
    current, old = _page(_loaded_engine()), _page(_loaded_engine(), "old")
    for before, after in (
        ("gpu_cache_usage_perc", "kv_cache_usage_perc"),
        ("gpu_prefix_cache_queries_total", "prefix_cache_queries_total"),
        ("time_per_output_token_seconds_bucket", "inter_token_latency_seconds_bucket"),
    ):
        assert f"vllm:{before}{{" in old
        assert f"vllm:{after}{{" not in old
        assert f"vllm:{before}{{" not in current
        assert f"vllm:{after}{{" in current
    for name in ("num_requests_running", "num_requests_waiting", "prompt_tokens_total", "num_preemptions_total"):
        assert f"vllm:{name}{{" in old


def test_a_model_name_with_quotes_does_not_break_the_page() -> None:
    odd = EngineSettings(port=0, profile=SMALL, model='a"b\\c\nd')
    page = metrics_page.render(odd, small_engine().gauges, small_engine().counters, 0.0)
    names = {s.labels.get("model_name") for f in text_string_to_metric_families(page) for s in f.samples}
    assert names == {'a"b\\c\nd', None}


async def test_the_page_has_vllms_content_type() -> None:
    async with serving(settings()) as (base,), aiohttp.ClientSession() as http, http.get(f"{base}/metrics") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=1.0.0; charset=utf-8"
        assert "vllm:num_requests_running" in await answer.text()


# Families of a page captured from vLLM 0.32, each with its type and labels; all but the first begin with ``vllm:``.
REAL = """
process_start_time_seconds gauge
num_requests_running gauge engine,model_name
num_requests_waiting gauge engine,model_name
num_requests_waiting_by_reason gauge engine,model_name,reason
engine_sleep_state gauge engine,model_name,sleep_state
kv_cache_usage_perc gauge engine,model_name
prefix_cache_queries_total counter engine,model_name
prefix_cache_hits_total counter engine,model_name
prompt_tokens_by_source_total counter engine,model_name,source
prompt_tokens_cached_total counter engine,model_name
admission_rejections_total counter model_name,reason
num_preemptions_total counter engine,model_name
prompt_tokens_total counter engine,model_name
generation_tokens_total counter engine,model_name
request_success_total counter engine,finished_reason,model_name
iteration_tokens_total histogram engine,le,model_name
request_prompt_tokens histogram engine,le,model_name
request_generation_tokens histogram engine,le,model_name
request_params_max_tokens histogram engine,le,model_name
request_prefill_kv_computed_tokens histogram engine,le,model_name
request_num_preemptions histogram engine,le,model_name
time_to_first_token_seconds histogram engine,le,model_name
e2e_request_latency_seconds histogram engine,le,model_name
request_queue_time_seconds histogram engine,le,model_name
request_inference_time_seconds histogram engine,le,model_name
request_prefill_time_seconds histogram engine,le,model_name
request_decode_time_seconds histogram engine,le,model_name
inter_token_latency_seconds histogram engine,le,model_name
request_time_per_output_token_seconds histogram engine,le,model_name
"""


def test_the_families_are_those_of_a_real_engine_with_their_types_and_labels() -> None:
    lines = _page(_loaded_engine()).splitlines()
    found: list[str] = []
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", "\n".join(lines), re.MULTILINE):
        first = next(line for line in lines if re.match(rf"{name}(_bucket)?[{{ ]", line))
        labels = ",".join(re.findall(r'(\w+)="', first))
        found.append(f"{name.removeprefix('vllm:')} {kind} {labels}".rstrip())
    described = [line for line in found if "_created " not in line and not line.startswith("cache_config_info ")]
    assert described == REAL.split("\n")[1:-1]
