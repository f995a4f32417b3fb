"""Why a request goes where it goes: the same answer as the decision's own, with its reasons."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, C, Draws, ask, candidate, candidates, dispatcher, draws
from tidegate.fleet.events import LoadReported, ScrapeFailed
from tidegate.fleet.health import UNREACHABLE_AFTER
from tidegate.fleet.load import EngineReport
from tidegate.fleet.view import EndpointView
from tidegate.scheduling import pickers, scorers
from tidegate.scheduling.dispatch import Decision, Refusal, RefusalReason
from tidegate.scheduling.explain import Case, Explanation, explain
from tidegate.scheduling.filters import Step
from tidegate.scheduling.policy import Policy

STATELESS = sorted(set(pickers.names()) - {"round_robin", "least_request", "lora_affinity"})


@pytest.mark.parametrize("policy", STATELESS)
def test_a_recorded_decision_is_explained_as_it_was_decided(policy: str) -> None:
    members = [f"10.0.0.{number}:8000" for number in range(40)]
    fleet, decides = dispatcher(policy, *members, rng=random.Random(3))
    cases: list[Case] = []
    decides.sample(1.0, cases.append)
    for number, member in enumerate(members):
        fleet.apply(LoadReported(member, EngineReport(float(number % 7), number % 3, number / 50, 9000.0)), 0.0)
    decisions = [decides.decide(ask(str(n), prompt=n * 20, prefix=(n % 3, n), session=f"s{n}"), 0.0) for n in range(60)]
    assert len(cases) == 60
    for case, decision in zip(cases, decisions, strict=True):
        assert isinstance(decision, Decision)
        explanation = explain(case, pickers.make(policy))
        assert explanation.pick == decision.addresses[0] == explanation.order[0]
        assert explanation.order[: len(decision.addresses)] == decision.addresses[: len(explanation.order)]
        assert explanation.runner_up == (explanation.order[1] if len(explanation.order) > 1 else None)


def test_a_share_of_the_decisions_is_recorded() -> None:
    _, decides = dispatcher("random", A, B, rng=random.Random(1))
    cases: list[Case] = []
    decides.sample(0.1, cases.append)
    for number in range(1000):
        decides.decide(ask(str(number)), 0.0)
    assert len(cases) == pytest.approx(100, abs=30)
    decides.sample(0.0, cases.append)
    before = len(cases)
    decides.decide(ask("last"), 0.0)
    assert len(cases) == before


def test_it_tells_who_was_left_out_and_why() -> None:
    fleet, decides = dispatcher("least_tokens", A, B, C, rng=Draws([0.5]))
    for _ in range(UNREACHABLE_AFTER):
        fleet.apply(ScrapeFailed(A, unreachable=True, reason="refused"), 0.0)
    fleet.apply(LoadReported(B, EngineReport(kv_usage=1.0, kv_capacity_tokens=1000.0)), 0.0)
    told = decides.explain(ask("q1"), 0.0)
    assert isinstance(told, Explanation)
    assert [step for step in told.steps if step.removed] == [Step("healthy", (A,), False), Step("fits", (B,), False)]
    assert (told.pick, told.runner_up, told.order) == (C, None, (C,))
    assert {endpoint.address for endpoint in told.case.candidates} == {A, B, C}
    assert told.case.members == 3
    assert told.case.request.output_tokens == 250


def test_it_changes_nothing() -> None:
    fleet, decides = dispatcher("round_robin", A, B, C, rng=Draws([0.5]))
    told = [decides.explain(ask("q1"), 0.0) for _ in range(3)]
    assert all(isinstance(each, Explanation) and each.pick == A for each in told)
    assert len(fleet.ledger) == 0
    decision = decides.decide(ask("q1"), 0.0)
    assert isinstance(decision, Decision)
    assert decision.addresses[0] == A


def test_a_request_that_goes_nowhere_is_a_refusal() -> None:
    _, decides = dispatcher("random", rng=Draws([0.5]))
    told = decides.explain(ask(), 0.0)
    assert isinstance(told, Explanation)
    assert (told.pick, told.steps, told.order) == (None, (), ())
    fresh = type(decides)(decides._fleet, Draws([0.5]))
    assert fresh.explain(ask(), 0.0) == Refusal(RefusalReason.UNKNOWN_MODEL)


@settings(max_examples=40, deadline=None)
@given(candidates(), st.sampled_from(pickers.names()), draws())
def test_every_score_of_everybody_who_is_left_is_told(offered: list[EndpointView], policy: str, rng: Draws) -> None:
    case = Case(ask(session="s", adapter="a"), Policy(policy), 50, tuple(offered), (rng.random(),))
    told = explain(case, pickers.make(policy))
    left = {endpoint.address for endpoint in offered}
    for step in told.steps:
        left -= set() if step.passed_over else set(step.removed)
    assert set(told.order) == left
    assert set(told.scores) == set(scorers.names())
    assert all(set(scores) == left for scores in told.scores.values())
    assert told.figures == {} or set(told.figures) == left


def test_the_parts_of_the_order_are_told() -> None:
    offered = (candidate(A, waiting=4, kv_usage=0.5), candidate(B, waiting=0, kv_usage=0.5))
    told = explain(Case(ask(), Policy("weighted_scores"), 2, offered), pickers.make("weighted_scores"))
    assert told.figures[B] == {"queue": 2.0, "kv_usage": 1.0, "prefix": 0.0, "sum": 3.0}
    assert told.scores["queue"] == {A: 0.0, B: 1.0}
    assert (told.pick, told.runner_up) == (B, A)
