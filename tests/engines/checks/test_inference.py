"""The check ``inference``: one token, where nobody is disturbed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.checks.asked import ask, asked, check, saying
from tests.simulator.engines import serving, settings
from tidegate.engines.api import api
from tidegate.engines.check import Finding, Standing
from tidegate.engines.checks.inference import generated

SAID = {"choices": [{"text": " there", "finish_reason": "length"}]}


async def test_a_token_passes() -> None:
    found, heads = await asked(check(name="inference"), saying(SAID), models=("llama",))
    assert found.finding is Finding.PASSED
    assert heads == ["POST /v1/completions"]


async def test_the_models_are_asked_for_where_no_name_is_known() -> None:
    both = {**SAID, "data": [{"id": "llama"}]}
    found, heads = await asked(check(name="inference"), saying(both))
    assert found.finding is Finding.PASSED
    assert heads == ["GET /v1/models", "POST /v1/completions"]


async def test_every_engine_is_asked_in_its_own_language() -> None:
    found, heads = await asked(check(name="inference"), saying({"generated_text": "!"}), engine="tgi")
    assert found.finding is Finding.PASSED
    assert heads == ["POST /generate"]
    assert api("tgi").question("")["parameters"] == {"max_new_tokens": 1}
    assert api("sglang").question("m") == {**api("vllm").question("m")}
    assert api("vllm").question("m")["max_tokens"] == 1


@pytest.mark.parametrize("standing", [Standing(inflight=1), Standing(others=2.0)])
async def test_an_engine_at_work_is_not_asked(standing: Standing) -> None:
    found, heads = await asked(check(name="inference"), saying(SAID), standing=standing)
    assert found.finding is Finding.SKIPPED
    assert heads == []


@pytest.mark.parametrize(
    ("answer", "status", "finding"),
    [
        ({"error": {"message": "EngineCore encountered an issue", "code": 500}}, "500 Error", Finding.FAILED),
        ({"error": {"message": "EngineCore encountered an issue", "code": 500}}, "200 OK", Finding.FAILED),
        ({"choices": []}, "200 OK", Finding.FAILED),
        ({"choices": [{"text": "", "finish_reason": "abort"}]}, "200 OK", Finding.FAILED),
        ({"error": {"message": "no such model"}}, "404 Not Found", Finding.FAILED),
        ({"error": {"message": "busy"}}, "503 Service Unavailable", Finding.BUSY),
        ({"error": {"message": "busy"}}, "429 Too Many Requests", Finding.BUSY),
        ({"error": {"message": "what?"}}, "400 Bad Request", Finding.UNKNOWN),
        ({"error": {"message": "who?"}}, "401 Unauthorized", Finding.UNKNOWN),
    ],
)
async def test_what_is_no_token_means_what_it_says(answer: object, status: str, finding: Finding) -> None:
    found, _ = await asked(check(name="inference"), saying(answer, status), models=("llama",))
    assert found.finding is finding


async def test_a_simulated_engine_that_computes_passes_and_a_frozen_one_does_not() -> None:
    async with serving(settings()) as (base,):
        address = base.removeprefix("http://")
        assert (await ask(check(name="inference"), address)).finding is Finding.PASSED
        async with __import__("aiohttp").ClientSession(base) as http:
            await http.post("/fault", json={"freeze": True})
        assert (await ask(check(name="inference"), address)).finding is Finding.TIMED_OUT


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(json.dumps).map(str.encode))
def test_whatever_is_answered_is_judged(body: bytes) -> None:
    assert generated(body) is False
