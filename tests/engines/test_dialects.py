from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.engines import pages
from tidegate import config
from tidegate.engines import dialects
from tidegate.engines.dialect import Dialect
from tidegate.engines.exposition import parse
from tidegate.engines.reading import read
from tidegate.fleet.load import EngineReport

BESIDES_LOAD = ("started_at", "max_adapters", "running_adapters", "waiting_adapters")
CAPTURES = next((path for at in Path(__file__).parents if (path := at / "shared/samples").is_dir()), None)
"""Pages captured from real engines, which are not part of the repository."""


def report(engine: str, text: str | bytes) -> EngineReport:
    dialect = dialects.dialect(engine)
    return read(dialect, parse(text, dialect.wanted))


def without(page: str, *fragments: str) -> str:
    return "\n".join(line for line in page.splitlines() if not any(fragment in line for fragment in fragments))


def test_every_engine_of_the_configuration_has_a_dialect_and_no_other_has() -> None:
    assert dialects.names() == tuple(sorted(get_args(config.Engine)))
    assert all(isinstance(dialects.dialect(name), Dialect) for name in dialects.names())


@pytest.mark.parametrize("name", ["", "vllm.py", "os", "../vllm", "__init__", "triton"])
def test_an_unknown_dialect_is_an_error(name: str) -> None:
    with pytest.raises(KeyError):
        dialects.dialect(name)


def test_a_dialect_speaks_of_every_field_of_a_report_and_of_no_other() -> None:
    meanings = [name for name, _ in dialects.dialect("none").meanings()]
    assert meanings == list(EngineReport.__dataclass_fields__)


def test_only_the_dialect_none_has_no_page() -> None:
    assert {name for name in dialects.names() if dialects.dialect(name).metrics_path is None} == {"none"}
    assert dialects.dialect("trtllm").metrics_path == "/prometheus/metrics"
    assert not dialects.dialect("none").wanted


def test_vllm_is_read() -> None:
    assert report("vllm", pages.VLLM) == EngineReport(
        running=6,
        waiting=4,
        kv_usage=0.5078534031413613,
        kv_capacity_tokens=6144,
        prompt_tokens_total=6698,
        generation_tokens_total=1759,
        max_adapters=1,
        running_adapters=frozenset({"b", "c"}),
        waiting_adapters=frozenset(),
    )


def test_of_vllms_adapters_the_newest_sample_tells() -> None:
    page = (
        'vllm:lora_requests_info{max_lora="4",running_lora_adapters="new",waiting_lora_adapters=" x , y"} 20\n'
        'vllm:lora_requests_info{max_lora="2",running_lora_adapters="old",waiting_lora_adapters=""} 10\n'
    )
    read = report("vllm", page)
    assert (read.max_adapters, read.running_adapters, read.waiting_adapters) == (
        4,
        frozenset({"new"}),
        frozenset({"x", "y"}),
    )


@pytest.mark.parametrize("value", ["NaN", "nonsense", "+Inf"])
def test_adapters_without_a_time_are_unknown(value: str) -> None:
    page = f'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""}} {value}\n'
    read = report("vllm", page)
    assert (read.max_adapters, read.running_adapters, read.waiting_adapters) == (None, None, None)


def test_a_vllm_without_lora_says_nothing_of_adapters() -> None:
    read = report("vllm", without(pages.VLLM, "lora_requests_info") + "\nprocess_start_time_seconds 17.5\n")
    assert (read.max_adapters, read.running_adapters, read.waiting_adapters) == (None, None, None)
    assert read.started_at == 17.5


def test_the_ranks_of_a_data_parallel_vllm_are_added_up_and_their_shares_averaged() -> None:
    assert report("vllm", pages.VLLM_TWO_RANKS) == EngineReport(
        running=8,
        waiting=5,
        kv_usage=0.5,
        kv_capacity_tokens=16 * 190,
        prompt_tokens_total=150,
        generation_tokens_total=50,
    )


def test_the_model_names_of_a_vllm_are_added_up() -> None:
    page = 'vllm:num_requests_running{model_name="m"} 2\nvllm:num_requests_running{model_name="alias"} 3\n'
    assert report("vllm", page).running == 5


def test_an_old_vllm_is_read_by_its_old_names() -> None:
    assert report("vllm", pages.VLLM_OLD) == EngineReport(
        running=1, waiting=0, kv_usage=0.125, kv_capacity_tokens=32768
    )


def test_the_new_name_wins_where_both_are_there() -> None:
    page = 'vllm:gpu_cache_usage_perc{engine="0"} 0.9\nvllm:kv_cache_usage_perc{engine="0"} 0.1\n'
    assert report("vllm", page).kv_usage == 0.1


def test_the_new_name_wins_even_where_its_value_is_unknown() -> None:
    page = 'vllm:gpu_cache_usage_perc{engine="0"} 0.9\nvllm:kv_cache_usage_perc{engine="0"} NaN\n'
    assert report("vllm", page).kv_usage is None


@pytest.mark.parametrize(
    ("missing", "field"),
    [
        ("requests_running", "running"),
        ("requests_waiting", "waiting"),
        ("usage_perc", "kv_usage"),
        ("cache_config_info", "kv_capacity_tokens"),
        ("prompt_tokens_total", "prompt_tokens_total"),
        ("generation_tokens_total", "generation_tokens_total"),
    ],
)
def test_a_missing_series_is_unknown_and_takes_nothing_else_with_it(missing: str, field: str) -> None:
    whole = report("vllm", pages.VLLM)
    part = report("vllm", without(pages.VLLM, missing))
    assert getattr(part, field) is None
    assert all(
        getattr(part, name) == getattr(whole, name) for name in EngineReport.__dataclass_fields__ if name != field
    )


def test_blocks_that_vllm_does_not_know_are_replaced_by_its_own_figure() -> None:
    info = 'vllm:cache_config_info{block_size="32",num_gpu_blocks="None",kv_cache_size_tokens="6144"} 1.0'
    assert report("vllm", info).kv_capacity_tokens == 6144
    assert report("vllm", info.replace("6144", "None")).kv_capacity_tokens is None
    assert report("vllm", 'vllm:cache_config_info{block_size="32"} 1').kv_capacity_tokens is None


def test_sglang_is_read() -> None:
    assert report("sglang", pages.SGLANG) == EngineReport(
        running=162,
        waiting=2826,
        kv_usage=0.28,
        kv_capacity_tokens=64_000,
        prompt_tokens_total=8_128_902,
        generation_tokens_total=7_557_572,
    )


def test_an_sglang_without_page_gauges_is_read_by_its_other_figures() -> None:
    bare = without(pages.SGLANG, "page_size", "num_pages")
    assert report("sglang", bare).kv_capacity_tokens == 1
    info = '\nsglang:cache_config_info{page_size="16",num_pages="10"} 1\n'
    assert report("sglang", bare + info).kv_capacity_tokens == 160


def test_tgi_is_read() -> None:
    assert report("tgi", pages.TGI) == EngineReport(running=8, waiting=3)


def test_trtllm_serve_is_read() -> None:
    assert report("trtllm", pages.TRTLLM) == EngineReport(running=5, waiting=2, kv_usage=0.4, kv_capacity_tokens=32_000)


def test_triton_is_read() -> None:
    assert report("trtllm", pages.TRITON) == EngineReport(
        running=3, waiting=7, kv_usage=0.26, kv_capacity_tokens=128_000
    )


def test_an_old_triton_has_its_share_derived_and_its_queue_unknown() -> None:
    old = without(pages.TRITON, "waiting", "fraction")
    assert report("trtllm", old) == EngineReport(running=3, kv_usage=0.25, kv_capacity_tokens=128_000)


def test_llamacpp_is_read() -> None:
    expected = EngineReport(running=4, waiting=6, prompt_tokens_total=1253, generation_tokens_total=18)
    assert report("llamacpp", pages.LLAMACPP) == expected


def test_an_old_llamacpp_says_how_full_it_is() -> None:
    assert report("llamacpp", "llamacpp:kv_cache_usage_ratio 0.25\n").kv_usage == 0.25


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi", "trtllm", "llamacpp", "none"])
def test_the_page_of_another_engine_says_nothing(engine: str) -> None:
    texts = {
        "vllm": pages.VLLM,
        "sglang": pages.SGLANG,
        "tgi": pages.TGI,
        "trtllm": pages.TRTLLM,
        "llamacpp": pages.LLAMACPP,
    }
    others = "\n".join(text for name, text in texts.items() if name != engine)
    assert report(engine, others) == EngineReport()


@pytest.mark.skipif(CAPTURES is None, reason="the captured pages are not here")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "vllm/metrics-under-load.txt",
            EngineReport(6.0, 4.0, 0.5078534031413613, 6144.0, 6698.0, 1759.0),
        ),
        ("vllm/metrics-lora-under-load.txt", EngineReport(4.0, 4.0, 0.06282722513089001, 6144.0, 252.0, 125.0)),
        ("vllm/metrics-preempted.txt", EngineReport(0.0, 0.0, 0.0, 6144.0, 1716.0, 7200.0)),
        ("vllm/metrics-idle.txt", EngineReport(0.0, 0.0, 0.0, 2097152.0, 0.0, 0.0)),
        ("llamacpp/metrics-under-load.txt", EngineReport(4.0, 6.0, None, None, 1253.0, 18.0)),
        ("llamacpp/metrics-after-load.txt", EngineReport(0.0, 0.0, None, None, 3095.0, 3018.0)),
        ("sglang/metrics-documented.txt", EngineReport(162.0, 2826.0, 0.28, None, 8128902.0, 7557572.0)),
        ("trtllm/README.md", EngineReport(1.0, None, 1 / 6239, 64.0 * 6239)),
        ("tgi/README.md", EngineReport(0.0, 0.0)),
    ],
)
def test_captured_and_documented_pages_are_read(path: str, expected: EngineReport) -> None:
    assert CAPTURES is not None
    engine = path.partition("/")[0]
    dialect = dialects.dialect(engine)
    page = parse((CAPTURES / path).read_bytes(), dialect.wanted)
    assert page.skipped == 0
    report = read(dialect, page)
    assert replace(report, **dict.fromkeys(BESIDES_LOAD)) == expected
    assert engine != "vllm" or (report.started_at or 0.0) > 1e9


@pytest.mark.skipif(CAPTURES is None, reason="the captured pages are not here")
def test_the_adapters_of_a_captured_page_are_the_newest() -> None:
    assert CAPTURES is not None
    idle = report("vllm", (CAPTURES / "vllm/metrics-preempted.txt").read_bytes())
    assert (idle.max_adapters, idle.running_adapters, idle.waiting_adapters) == (1.0, frozenset(), frozenset())
