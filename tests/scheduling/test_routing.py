"""Which pool serves a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.fleet.endpoint import PoolSpec
from tidegate.scheduling.routing import ModelRoutes


def routes(**pools: list[str]) -> ModelRoutes:
    return ModelRoutes(PoolSpec(name, "none", tuple(models), ()) for name, models in pools.items())


def test_a_star_serves_every_model() -> None:
    found = routes(default=["*"])
    assert found.pool_of("llama-3") == "default"
    assert found.pool_of("") == "default"
    assert found.pool_of("two\nlines") == "default"


def test_a_model_nobody_serves_has_no_pool() -> None:
    found = routes(one=["llama-*"], two=["qwen"])
    assert found.pool_of("mistral") is None
    assert ModelRoutes(()).pool_of("qwen") is None


def test_a_name_written_out_wins_over_a_longer_pattern() -> None:
    found = routes(patterns=["llama*3*8b*instruct*"], exact=["llama-3-8b-instruct"])
    assert found.pool_of("llama-3-8b-instruct") == "exact"


def test_a_longer_pattern_wins_over_a_shorter_one() -> None:
    found = routes(rest=["*"], llama=["llama-*"], big=["llama-3-70b*"])
    assert found.pool_of("llama-3-70b-instruct") == "big"
    assert found.pool_of("llama-3-8b") == "llama"
    assert found.pool_of("qwen") == "rest"


@pytest.mark.parametrize("model", ["m", "m*"])
def test_among_equals_the_pool_declared_first_wins(model: str) -> None:
    assert routes(first=[model], second=[model]).pool_of("m") == "first"


def test_a_pattern_must_match_the_whole_name() -> None:
    found = routes(one=["*-8b"])
    assert found.pool_of("llama-8b") == "one"
    assert found.pool_of("llama-8b-instruct") is None
    assert found.pool_of("llama-8b\n") is None


def test_upper_and_lower_case_differ() -> None:
    assert routes(one=["Llama*"]).pool_of("llama-3") is None


@pytest.mark.parametrize("name", ["a?c", "a[b]c", "[!a]", "a.c", "a+", "(a)", "a\\b", "^a$", "{a}"])
def test_everything_but_the_star_stands_for_itself(name: str) -> None:
    found = routes(one=[name + "*"])
    assert found.pool_of(name) == "one"
    assert found.pool_of(name + "/x") == "one"
    assert found.pool_of("abc") is None


def test_many_stars_do_not_make_a_long_name_costly() -> None:
    found = routes(one=["*a" * 20 + "*b"])
    assert found.pool_of("a" * 20_000) is None


@given(st.text(), st.text(), st.text())
def test_a_pattern_serves_exactly_what_begins_and_ends_as_it_says(begin: str, end: str, model: str) -> None:
    begin, end = begin.replace("*", ""), end.replace("*", "")
    expected = len(model) >= len(begin) + len(end) and model.startswith(begin) and model.endswith(end)
    assert (routes(one=[f"{begin}*{end}"]).pool_of(model) == "one") == expected
    assert routes(one=[f"{begin}*{end}"]).pool_of(begin + model + end) == "one"


def test_an_adapter_goes_to_the_pool_of_its_base_model() -> None:
    pools = (PoolSpec("base", "vllm", ("llama",), (), adapters=("lora-*", "sql")), PoolSpec("rest", "vllm", ("*",), ()))
    found = ModelRoutes(pools)
    assert found.find("sql") == ("base", True)
    assert found.find("lora-7") == ("base", True)
    assert found.find("llama") == ("base", False)
    assert found.find("qwen") == ("rest", False)


def test_what_is_sent_to_a_pool_is_an_adapter_by_that_pools_patterns() -> None:
    pools = (
        PoolSpec("base", "vllm", ("llama",), (), adapters=("lora-*",)),
        PoolSpec("long", "vllm", (), (), adapters=("lora-x-*",)),
        PoolSpec("rest", "vllm", ("*",), ()),
    )
    found = ModelRoutes(pools)
    assert found.pool_of("lora-x-1") == "long"
    assert found.is_adapter("lora-x-1", "base")
    assert not found.is_adapter("lora-y", "long")
    assert not found.is_adapter("llama", "base")
    assert not found.is_adapter("lora-y", "rest")
