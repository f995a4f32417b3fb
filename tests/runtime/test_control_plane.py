"""The parts of the control plane together, without anything that listens."""

import asyncio
import contextlib
import gzip
import time
from pathlib import Path

import pytest

from extproc.apis import completions
from extproc.errors import ApiError
from tests.telemetry.entries import DECISION, entry, usage
from tests.tokens.model_files import write
from tidegate.config import parse
from tidegate.runtime import decider
from tidegate.runtime.alone import Alone
from tidegate.runtime.control_plane import ControlPlane
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry.decision_record import decode
from tidegate.telemetry.record import RequestRecord
from tidegate.telemetry.record import parse as read
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.prompt import Prompt

TEXT = b'pools: [{name: one, engine: none, policy: predicted_latency, endpoints: [{address: "127.0.0.1:1"}]}]\n'


def plane(folder: Path, more: bytes = b"") -> ControlPlane:
    file = folder / "tidegate.yaml"
    file.write_bytes(TEXT + more)
    return ControlPlane(parse(TEXT + more, str(file)), file)


def deciding_of(tested: ControlPlane) -> decider.Decider:
    """Return what decides in the control plane's own process."""
    assert isinstance(tested._deciding, Alone)
    return tested._deciding.decider


def request(number: str) -> InferenceRequest:
    return InferenceRequest(number, "chat_completions", "any", TokenCount(10, CountSource.EXACT))


async def test_the_fleet_is_known_before_anybody_can_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Envoy that waits for a new control plane asks at once; "no such model" would be the wrong answer."""
    tested = plane(tmp_path)
    answers: list[object] = []

    async def listen(_: contextlib.AsyncExitStack) -> None:
        answers.append(deciding_of(tested).dispatcher.decide(request("r1"), 0.0))

    monkeypatch.setattr(tested, "_listen", listen)
    monkeypatch.setattr(deciding_of(tested).counter, "warm", lambda: None)
    monkeypatch.setattr(decider, "_spare_the_collector", lambda: None)
    stop = asyncio.Event()
    stop.set()
    await tested.run(stop)
    assert [type(answer) for answer in answers] == [Decision]


async def test_decisions_are_recorded_where_the_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "decisions.jsonl"
    tested = plane(tmp_path, f"decision_log: {{file: {file}, sample: 1.0}}\n".encode())
    stop = asyncio.Event()

    async def listen(_: contextlib.AsyncExitStack) -> None:
        pass

    def decide_and_stop() -> None:
        deciding_of(tested).dispatcher.decide(request("r1"), 0.0)
        stop.set()

    monkeypatch.setattr(tested, "_listen", listen)
    monkeypatch.setattr(deciding_of(tested).counter, "warm", lambda: None)
    # It is called when all tasks run.
    monkeypatch.setattr(decider, "_spare_the_collector", decide_and_stop)
    await tested.run(stop)
    (line,) = file.read_bytes().splitlines()
    assert decode(line).addresses == ("127.0.0.1:1",)


def ended(request_id: str, status: int, *flags: str) -> RequestRecord:
    """Return the record of a request that Envoy sent nowhere and knows no decision of."""
    log = entry(decision=None, destinations=None, served=None, status=status, flags=flags, attempts=0)
    log.request.request_id = request_id
    return read(log)


@pytest.fixture
def deciding(tmp_path: Path) -> ControlPlane:
    tested = plane(tmp_path)
    tested._take_over(tested._config)
    number = tested._correlation.new_id("same")
    deciding_of(tested).dispatcher.decide(request(number), 0.0)
    tested._correlation.remember(number)
    return tested


@pytest.mark.parametrize(
    ("status", "flags"), [(0, ["downstream_remote_reset"]), (504, []), (503, ["no_healthy_upstream"]), (413, [])]
)
def test_a_decision_that_envoy_dropped_is_released_by_the_requests_id(
    deciding: ControlPlane, status: int, flags: list[str]
) -> None:
    deciding._request_ended(ended("same", status, *flags))
    assert len(deciding._fleet.ledger) == 0


async def test_a_reload_brings_a_tokenizer_and_the_next_one_takes_it_away(tmp_path: Path) -> None:
    tested = plane(tmp_path)
    tested._take_over(tested._config)
    file = write(tmp_path / "tokenizer.json")
    with_tokenizer = parse(TEXT.replace(b"engine: none", f"engine: none, tokenizer: {file}".encode()), "tidegate.yaml")

    await tested._reloaded(with_tokenizer)
    assert (await deciding_of(tested).prompts.count("any", Prompt(("hello",)))) == TokenCount(1, CountSource.EXACT, 1)

    await tested._reloaded(parse(TEXT, "tidegate.yaml"))
    assert (await deciding_of(tested).prompts.count("any", Prompt(("hello",)))).source is CountSource.BYTES, (
        "nothing else is loaded"
    )


def test_an_answers_usage_corrects_the_next_count(deciding: ControlPlane) -> None:
    decision = {**DECISION, "pool": "one", "model": "any", "uncorrected_tokens": 2_000}
    deciding._request_ended(read(entry(decision=decision, tokens=usage(prompt=2_600))))
    assert deciding._corrections.ratio("one", "any") == pytest.approx(1.2, abs=0.1)
    assert b'tidegate_token_correction_ratio{model="any",pool="one"}' in deciding._metrics.render()


def test_what_a_request_took_teaches_the_endpoints_speed(deciding: ControlPlane) -> None:
    before = deciding._views()[0].endpoints[0]
    for number in range(20):
        deciding_of(deciding).dispatcher.decide(request(f"r{number}"), time.monotonic())
        log = entry(decision={**DECISION, "reservation": f"r{number}"}, tokens=usage(completion=200), seconds=200.0)
        deciding._request_ended(read(log))
    after = deciding._views()[0].endpoints[0]
    assert after.pace.step_seconds > 2 * before.pace.step_seconds


def test_a_failed_request_speaks_against_its_endpoint(deciding: ControlPlane) -> None:
    deciding_of(deciding).dispatcher.decide(request("r1"), 0.0)
    deciding._request_ended(read(entry(decision={**DECISION, "reservation": "r1"}, status=503)))
    assert deciding._views()[0].endpoints[0].failing > 0


async def test_bodies_are_read_as_the_limits_say_also_after_a_reload(tmp_path: Path) -> None:
    limits = b"limits: {max_body_bytes: 1500, compressed_bodies: refuse}\n"
    tested = plane(tmp_path, limits)
    tested._take_over(tested._config)
    with pytest.raises(ApiError, match="not supported"):
        deciding_of(tested).intake.coding({"content-encoding": "gzip"})

    await tested._reloaded(parse(TEXT + limits.replace(b"refuse", b"decode"), "file"))
    assert deciding_of(tested).intake.coding({"content-encoding": "gzip"}) == "gzip"
    with pytest.raises(ApiError, match="1500 bytes"):
        await deciding_of(tested).intake.read(completions.parse, gzip.compress(b" " * 1501), "gzip")

    await tested._reloaded(parse(TEXT + b"limits: {max_body_bytes: 1600}\n", "file"))
    with pytest.raises(ApiError, match="1600 bytes"):
        await deciding_of(tested).intake.read(completions.parse, gzip.compress(b" " * 1601), "gzip")
    deciding_of(tested).intake.close()
