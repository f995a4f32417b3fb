import math

import pytest

from extproc.errors import Shape
from extproc.ratelimit import HEADERS, exceeded, told
from tidegate.scheduling.allowance import Standing
from tidegate.scheduling.budget import Exceeded, Left, Limit, Unit, Window

RPM = Limit(Unit.REQUESTS, Window.MINUTE, 60)
TPM = Limit(Unit.INPUT_TOKENS, Window.MINUTE, 600, burst=300)
DAILY = Limit(Unit.OUTPUT_TOKENS, Window.DAY, 1000)
AT_ONCE = Limit(Unit.REQUESTS, Window.IN_FLIGHT, 2)


def test_a_client_reads_its_limits_in_openais_headers() -> None:
    headers = told(Standing(Left(RPM, 59, 1.0), Left(TPM, 30, 450.2)))
    assert headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "30",
        "x-ratelimit-reset-tokens": "7m31s",
    }
    assert tuple(headers) == HEADERS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0ms"), (0.0001, "1ms"), (0.9985, "999ms"), (1.2, "2s"), (59.9, "1m0s"), (360.0, "6m0s")],
)
def test_a_reset_is_written_as_openai_writes_it(seconds: float, text: str) -> None:
    assert told(Standing(None, Left(TPM, 1, seconds)))["x-ratelimit-reset-tokens"] == text


def test_who_has_no_limits_is_told_of_none() -> None:
    assert told(Standing(None, None)) == {}


@pytest.mark.parametrize(
    ("limit", "wait", "kind", "again"),
    [
        (RPM, 0.4, "requests", {"retry-after": "1"}),
        (TPM, 10.2, "tokens", {"retry-after": "11"}),
        (DAILY, 7200.5, "tokens", {"retry-after": "7201"}),
        (AT_ONCE, 0.0, "requests", {"retry-after": "1"}),
        (TPM, math.inf, "tokens", {"x-should-retry": "false"}),
    ],
)
def test_a_refusal_says_which_limit_and_when_to_come_again(
    limit: Limit, wait: float, kind: str, again: dict[str, str]
) -> None:
    error = exceeded(Exceeded("tenant:acme", limit, 7, wait), {"x-ratelimit-limit-tokens": "600"})
    assert (error.status, error.reason, error.code) == (429, "limit_exceeded", "rate_limit_exceeded")
    assert (error.kind, error.param) == (kind, limit.name)
    assert error.headers == {"x-ratelimit-limit-tokens": "600", **again}
    assert str(limit.amount) in error.message
    assert "asks for 7" in error.message
    assert b'"rate_limit_error"' in error.body(Shape.ANTHROPIC)


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("tenant:acme", "The tenant 'acme' reached its limit"),
        ("key:ci", "The API key 'ci' reached its limit"),
        ("tenant:acme/model:org/big:*", "The tenant 'acme' for the model 'org/big:*' reached its limit"),
    ],
)
def test_a_refusal_says_whose_limit_it_is(scope: str, words: str) -> None:
    assert exceeded(Exceeded(scope, RPM, 1, 1.0), {}).message.startswith(words)
