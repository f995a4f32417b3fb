"""Estimates of prompts, held against what a simulated engine reports, through a real Envoy.

The engine has four bytes to a token, whatever they say; digits have three to a token in OpenAI's vocabulary.
"""

import random
from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack, configuration, engines, until, up

REQUESTS = 25


class Counts:
    """What one request added to the estimated and to the reported prompt tokens."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._seen = self._read()

    def _read(self) -> tuple[float, float]:
        estimated, reported = "tidegate_prompt_tokens_estimated_total", "tidegate_prompt_tokens_total"
        return self._stack.total(estimated), self._stack.total(reported)

    def error(self, prompt: str) -> float:
        """Ask with ``prompt``; return how far its estimate was from the engine's count, as a share of that."""
        status, answer, _ = self._stack.ask(prompt, max_tokens=1)
        assert status == 200, answer
        until(lambda: self._read()[1] > self._seen[1], 10, "the request is counted")
        before, self._seen = self._seen, self._read()
        estimated, reported = self._seen[0] - before[0], self._seen[1] - before[1]
        assert reported == answer["usage"]["prompt_tokens"]
        return abs(estimated - reported) / reported


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("counts")
    with engines(folder, "h100") as ports, up(folder, configuration(ports)) as running:
        yield running


def test_the_error_of_estimates_shrinks_as_engines_report_usage(stack: Stack) -> None:
    rng, counts = random.Random(1), Counts(stack)
    prompts = ["".join(rng.choices("0123456789", k=rng.randint(2_000, 6_000))) for _ in range(REQUESTS)]
    errors = [counts.error(prompt) for prompt in prompts]
    assert errors[0] == pytest.approx(1 / 3, abs=0.02)
    assert max(errors[-5:]) < 0.03, errors
    assert stack.total("tidegate_token_correction_ratio", pool="default") == pytest.approx(0.75, abs=0.02)
    assert stack.total("tidegate_prompt_tokens_estimated_total", source="learned") > 0
