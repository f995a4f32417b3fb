"""Questions about requests that are never sent."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from extproc import affinity
from extproc.body import ParsedBody
from tests.runtime.test_control_plane import deciding_of, plane
from tidegate.config import Config, parse
from tidegate.discovery import static
from tidegate.fleet.state import Fleet
from tidegate.runtime.control_plane import ControlPlane
from tidegate.runtime.inquiry import Inquiry
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.explain import Case
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry.admin import UnanswerableError
from tidegate.telemetry.decision_record import decode
from tidegate.tokens.count import CountSource, TokenCount

A, B = "127.0.0.1:1", "127.0.0.1:2"
POOLS = f"""
pools:
- name: warm
  engine: none
  models: [known]
  policy: prefix_affinity
  endpoints: [{{address: "{A}"}}, {{address: "{B}"}}]
- name: turns
  engine: none
  models: [turning]
  policy: round_robin
  endpoints: [{{address: "10.0.0.1:1"}}, {{address: "10.0.0.2:1"}}]
"""


@pytest.fixture
def config() -> Config:
    return parse(POOLS.encode(), "tidegate.yaml")


@pytest.fixture
def tested(tmp_path: Path, config: Config) -> ControlPlane:
    made = plane(tmp_path)
    made._take_over(config)
    return made


def inquiry(tested: ControlPlane) -> Inquiry:
    return Inquiry.of(deciding_of(tested), routed=True)


async def asked(inquiry: Inquiry, **question: Any) -> Case:
    return decode(await inquiry.answer(json.dumps(question).encode()))


async def test_a_question_is_answered_and_nothing_is_reserved(tested: ControlPlane) -> None:
    case = await asked(inquiry(tested), model="known", prompt_tokens=1_200, max_tokens=50)
    assert (case.request.pool, case.policy.picker, case.members) == ("warm", "prefix_affinity", 2)
    assert (case.request.prompt.tokens, case.request.max_output_tokens) == (1_200, 50)
    assert sorted(case.addresses) == [A, B]
    assert len(tested._fleet.ledger) == 0


async def test_a_prompt_is_counted_and_looked_for_in_what_engines_have(tested: ControlPlane) -> None:
    text = "the same beginning of every prompt " * 60
    cold = await asked(inquiry(tested), model="known", prompt=text)
    assert cold.request.prompt.tokens == pytest.approx(len(text) / 4, rel=0.5)
    assert {one.cached_tokens for one in cold.candidates} == {0}
    sent = await _sent(tested, text)
    warm = await asked(inquiry(tested), model="known", prompt=text + "and another end")
    assert {one.address: one.cached_tokens > 0 for one in warm.candidates} == {A: sent == A, B: sent == B}
    assert warm.addresses[0] == sent


async def _sent(tested: ControlPlane, text: str) -> str:
    """Decide on a request with the prompt, as ext_proc would; return where it went."""
    start = affinity.beginning(ParsedBody("known", (text,)), 500)
    count = TokenCount(500, CountSource.EXACT)
    request = InferenceRequest(
        "r1", "completions", "known", count, prefix=start.hashes, block_tokens=start.block_tokens
    )
    decision = deciding_of(tested).dispatcher.decide(request, 0.0)
    assert isinstance(decision, Decision)
    return decision.addresses[0]


async def test_asking_does_not_take_a_turn(tested: ControlPlane) -> None:
    picks = Counter([(await asked(inquiry(tested), model="turning", prompt_tokens=1)).addresses[0] for _ in range(5)])
    assert len(picks) == 1
    request = InferenceRequest("r1", "completions", "turning", TokenCount(1, CountSource.EXACT))
    decision = deciding_of(tested).dispatcher.decide(request, 0.0)
    assert isinstance(decision, Decision)
    assert decision.addresses[0] in picks
    after = await asked(inquiry(tested), model="turning", prompt_tokens=1)
    assert after.addresses[0] not in picks


async def test_a_pool_can_be_asked_by_its_name(tested: ControlPlane) -> None:
    assert (await asked(inquiry(tested), pool="turns", prompt_tokens=1)).request.pool == "turns"


async def test_routes_lead_a_question_as_they_lead_requests(tmp_path: Path) -> None:
    routed = (
        POOLS
        + """
routes:
- {model: known, min_prompt_tokens: 5000, pool: turns, rewrite_model: turning}
- {name: called, model: alias, pool: warm, rewrite_model: known}
- name: shared
  model: both
  split: [{pool: turns, weight: 9, rewrite_model: turning}, {pool: warm, rewrite_model: known}]
"""
    )
    tested = plane(tmp_path)
    tested._take_over(parse(routed.encode(), "tidegate.yaml"))
    for question, led in (
        ({"model": "known", "prompt_tokens": 4_999}, ("warm", "known", "")),
        ({"model": "known", "prompt_tokens": 5_000}, ("turns", "turning", "routes[0]")),
        ({"model": "alias", "prompt_tokens": 9_000}, ("warm", "known", "called")),
        ({"model": "both", "prompt_tokens": 9_000}, ("turns", "turning", "shared")),
        ({"model": "known", "prompt_tokens": 9_000, "pool": "warm"}, ("warm", "known", "")),
    ):
        case = await asked(inquiry(tested), **question)
        assert (case.request.pool, case.request.model, case.request.route) == led


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "not a question"),
        (b"[]", 400, "not a question"),
        (b'{"model": "\xff"}', 400, "not a question"),
        (b'{"modle": "x", "prompt": ""}', 400, "modle"),
        (b'{"model": "known"}', 400, "expected prompt, prompt_tokens or both"),
        (b'{"model": "known", "prompt_tokens": -1}', 400, "prompt_tokens"),
        (b'{"model": "other", "prompt_tokens": 1}', 404, "no pool serves the model 'other'"),
        (b'{"pool": "other", "prompt_tokens": 1}', 404, "there is no pool 'other'"),
        (b'{"prompt_tokens": 1}', 404, "no pool serves the model ''"),
    ],
)
async def test_what_has_no_answer_is_said(tested: ControlPlane, body: bytes, status: int, said: str) -> None:
    with pytest.raises(UnanswerableError) as raised:
        await inquiry(tested).answer(body)
    assert raised.value.status == status
    assert said in str(raised.value)


async def test_beside_workers_the_facts_are_asked_and_a_new_configuration_counts_at_once(config: Config) -> None:
    fleet = Fleet(60.0)
    fleet.apply(static.declared(config), 0.0)
    current = [config]
    beside = Inquiry.beside_workers(fleet, lambda: current[0])
    case = await asked(beside, model="known", prompt="x" * 400)
    assert (case.request.prompt.tokens, case.policy.picker) == (100, "prefix_affinity")
    current[0] = parse(POOLS.replace("prefix_affinity", "least_tokens").encode(), "tidegate.yaml")
    assert (await asked(beside, model="known", prompt_tokens=1)).policy.picker == "least_tokens"
