"""What callers may use: reserved by what was asked, settled by what was used, given back once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidegate.scheduling import caller as callers
from tidegate.scheduling.allowance import Allowance, Ask, Settled, whole_seconds
from tidegate.scheduling.budget import Cost, Left, Limit, Unit, Window
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.request import InferenceRequest
from tidegate.tokens.count import CountSource, TokenCount

NOON = 1_700_000_000.0
RPM = Limit(Unit.REQUESTS, Window.MINUTE, 60)
TPM = Limit(Unit.TOKENS, Window.MINUTE, 600)
INPUT = Limit(Unit.INPUT_TOKENS, Window.MINUTE, 1000)
AT_ONCE = Limit(Unit.TOKENS, Window.IN_FLIGHT, 500)
MODELS = callers.models([("big-*", "tenant:a/model:big-*"), ("b[i]g?", "tenant:a/model:b[i]g?")])
ALICE = Caller("a", 0, ("tenant:a", "key:one"), MODELS)


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def allowance(**limits: Limit) -> tuple[Allowance, Clock]:
    clock = Clock()
    made = Allowance(clock)
    scopes = {"tenant": "tenant:a", "key": "key:one", "model": "tenant:a/model:big-*"}
    made.configure({scopes[name]: [limit] for name, limit in limits.items()})
    return made, clock


def request(number: str = "r1", model: str = "small", prompt: int = 100) -> InferenceRequest:
    return InferenceRequest(number, "chat_completions", model, TokenCount(prompt, CountSource.EXACT))


def amounts(made: Allowance) -> dict[str, list[int]]:
    return {scope: [left.amount for left in limits] for scope, limits in made.left().items()}


def test_a_request_counts_against_its_tenant_its_key_and_its_model() -> None:
    made, _ = allowance(tenant=RPM, key=TPM, model=INPUT)
    assert made.reserve(Ask.of(request("r1", "small"), ALICE, 50)) is None
    assert amounts(made) == {"tenant:a": [59], "key:one": [450], "tenant:a/model:big-*": [1000]}
    assert made.reserve(Ask.of(request("r2", "big-70b"), ALICE, 50)) is None
    assert amounts(made) == {"tenant:a": [58], "key:one": [300], "tenant:a/model:big-*": [900]}


@pytest.mark.parametrize(
    ("model", "scopes"),
    [
        ("big-7b", ["tenant:a/model:big-*"]),
        ("BIG-7b", []),
        ("big", []),
        ("b[i]g?", ["tenant:a/model:b[i]g?"]),
        ("bigx", []),
        ("", ["tenant:a/model:big-*", "tenant:a/model:b[i]g?"]),
    ],
)
def test_only_a_star_stands_for_others_and_no_name_for_every_name(model: str, scopes: list[str]) -> None:
    assert ALICE.scopes_for(model) == ("tenant:a", "key:one", *scopes)


def test_the_limit_in_the_way_is_named_and_nothing_is_taken_from_the_others() -> None:
    made, _ = allowance(tenant=RPM, key=TPM)
    exceeded = made.reserve(Ask.of(request(prompt=601), ALICE, 0))
    assert exceeded is not None
    assert (exceeded.scope, exceeded.limit, exceeded.needed) == ("key:one", TPM, 601)
    assert (amounts(made), len(made)) == ({"tenant:a": [60], "key:one": [600]}, 0)


def test_what_was_used_is_settled_once_and_what_is_unknown_was_as_expected() -> None:
    made, _ = allowance(tenant=TPM)
    made.reserve(Ask.of(request("r1"), ALICE, 200))
    assert made.settle("r1", 90, 10) == Settled("a", Cost(90, 10))
    assert amounts(made) == {"tenant:a": [500]}
    assert made.settle("r1", 0, 0) is None
    assert not made.release("r1")
    made.reserve(Ask.of(request("r2"), ALICE, 200))
    assert made.settle("r2", None, None) == Settled("a", Cost(100, 200))
    assert amounts(made) == {"tenant:a": [200]}


def test_what_was_not_served_comes_back_whole_and_once() -> None:
    made, _ = allowance(tenant=TPM)
    made.reserve(Ask.of(request("r1"), ALICE, 200))
    made.reserve(Ask.of(request("r2"), ALICE, 200))
    assert made.release("r1")
    assert not made.release("r1")
    assert (amounts(made), len(made)) == ({"tenant:a": [300]}, 1)


def test_a_client_is_told_of_the_limit_that_is_nearest_to_its_end() -> None:
    made, clock = allowance(tenant=TPM, key=INPUT)
    assert made.standing(ALICE.scopes_for("small")) == (None, Left(TPM, 600, 0.0))
    made.reserve(Ask.of(request(prompt=550), ALICE, 0))
    standing = made.standing(ALICE.scopes_for("small"))
    assert standing == (None, Left(TPM, 50, 55.0))
    clock.now += 60
    assert made.standing(ALICE.scopes_for("small")).tokens == Left(TPM, 600, 0.0)
    assert made.standing(()) == (None, None)


@pytest.mark.parametrize(("wait", "seconds"), [(0.0, 1), (0.2, 1), (0.9995, 2), (9.5, 10), (10.0, 11), (59.1, 60)])
def test_whoever_waits_as_many_whole_seconds_has_waited_long_enough(wait: float, seconds: int) -> None:
    assert whole_seconds(wait) == seconds


@given(st.integers(1, 10**9), st.floats(0, 100), st.integers(1, 10**6))
def test_whoever_waits_as_long_as_was_told_passes(amount: int, later: float, more: int) -> None:
    clock = Clock()
    made = Allowance(clock)
    made.configure({"tenant:a": [Limit(Unit.TOKENS, Window.MINUTE, amount)]})
    caller = Caller("a", 0, ("tenant:a",))
    made.reserve(Ask.of(request("r1", prompt=amount), caller, 0))
    made.settle("r1", amount, more)
    clock.now += later
    exceeded = made.reserve(Ask.of(request("r2", prompt=min(amount, more)), caller, 0))
    if exceeded is not None:
        clock.now += whole_seconds(exceeded.wait_seconds)
        assert made.reserve(Ask.of(request("r2", prompt=min(amount, more)), caller, 0)) is None


class AnyEnd(RuleBasedStateMachine):
    """Requests whose end is told in any way, any number of times, while limits change."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.made = Allowance(self.clock)
        self.amount = 500
        self.made.configure({"tenant:a": [AT_ONCE]})
        self.held: dict[str, int] = {}
        self.number = 0

    @rule(prompt=st.integers(0, 300), output=st.integers(0, 300))
    def come(self, prompt: int, output: int) -> None:
        self.number += 1
        fits = sum(self.held.values()) + prompt + output <= self.amount or prompt + output == 0
        refused = self.made.reserve(Ask.of(request(f"r{self.number}", prompt=prompt), ALICE, output))
        assert (refused is None) == fits
        if fits:
            self.held[f"r{self.number}"] = prompt + output

    @rule(number=st.integers(0, 30), used=st.none() | st.integers(0, 1000), settled=st.booleans())
    def end(self, number: int, used: int | None, settled: bool) -> None:
        name = f"r{number}"
        there = self.held.pop(name, None) is not None
        told = self.made.settle(name, used, used) is not None if settled else self.made.release(name)
        assert told == there

    @rule(amount=st.integers(1, 1000))
    def change(self, amount: int) -> None:
        self.amount = amount
        self.made.configure({"tenant:a": [Limit(Unit.TOKENS, Window.IN_FLIGHT, amount)]})

    @invariant()
    def what_is_left_is_what_nobody_holds(self) -> None:
        assert amounts(self.made) == {"tenant:a": [max(0, self.amount - sum(self.held.values()))]}
        assert len(self.made) == len(self.held)


AnyEnd.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestAnyEnd = AnyEnd.TestCase
