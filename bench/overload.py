"""Clients that do not wait for one another: more requests than engines can serve, by classes, and what came of each."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from tidegate.simulator.virtual import synthetic
from tidegate.simulator.virtual.classes import LEAST_WAIT
from tidegate.simulator.virtual.percentiles import Percentiles
from tidegate.simulator.virtual.workload import Arrival, Workload

MODEL = "sim-test"
TOKEN_BYTES = 4  # in a simulated engine
WAITED, ESTIMATED = "x-tidegate-queue-seconds", "x-tidegate-queue-estimate-seconds"
_WORDS = "the cat ran out and saw its old dog sit far off one hot day but she did not see him "


@dataclass(slots=True)
class Answer:
    """What came of one request.

    Attributes:
        priority: of the request.
        status: HTTP's; 0 where there was no answer in time, or none at all.
        ttft: seconds to the first token; ``None`` where none came.
        whole: the answer came to its end.
        waited: seconds that it waited, as it was told; ``None`` where it was told nothing.
        estimate: seconds that it was expected to, likewise.
        retry_after: seconds after which it should come again, likewise.
    """

    priority: int
    status: int = 0
    ttft: float | None = None
    whole: bool = False
    waited: float | None = None
    estimate: float | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of the requests of one class, or of all.

    Attributes:
        requests: how many were sent.
        good: how many were answered with the first token in time.
        per_second: how many of those a second.
        ttft: of those that were answered; seconds.
        statuses: how many got which status; 0 is no answer in time.
        waited: of those that were told that they waited; seconds.
        error: how far off their estimates were; seconds.
        off: the same, as a share of the wait, or of a second where it was shorter.
    """

    requests: int
    good: int
    per_second: float
    ttft: Percentiles
    statuses: Mapping[int, int]
    waited: Percentiles
    error: Percentiles
    off: Percentiles


def workload(requests: int, rate: float, scale: float, seed: int) -> Workload:
    """Return the classes of the simulator's workload, with prompts and answers ``scale`` times as long.

    Clients say how long an answer may be, and engines make it as long.
    """
    drawn = synthetic.make("classes", requests, rate, seed)
    arrivals = []
    for one in drawn.arrivals:
        answer = max(2, min(round(one.output_tokens * scale), 200))
        prompt = max(8, min(round(one.prompt_tokens * scale), 2_000))
        arrivals.append(replace(one, prompt_tokens=prompt, output_tokens=answer, max_tokens=answer))
    return Workload(drawn.name, arrivals)


def body(number: int, arrival: Arrival) -> bytes:
    """Return a request for a simulated engine whose prompt no other request begins with."""
    text = (f"{number:<15d} " + _WORDS * (arrival.prompt_tokens * TOKEN_BYTES // len(_WORDS) + 1))[
        : arrival.prompt_tokens * TOKEN_BYTES
    ]
    asked = {
        "model": MODEL,
        "prompt": text,
        "max_tokens": arrival.output_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    return json.dumps(asked).encode()


@dataclass
class Clients:
    """Those who ask.

    Attributes:
        url: what they ask.
        headers: what those of a priority send besides.
        patience: seconds after which they leave, if the answer has not ended.
    """

    url: str
    headers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    patience: float = 10.0

    async def ask(self, asked: Workload) -> list[Answer]:
        """Send all of ``asked``, each at its time; return what came of them, in that order."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=self.patience)
        answers = [Answer(one.priority) for one in asked.arrivals]
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
            start = time.monotonic()
            for number, (arrival, answer) in enumerate(zip(asked.arrivals, answers, strict=True)):
                await asyncio.sleep(max(0.0, start + arrival.at - time.monotonic()))
                group.create_task(self._one(session, body(number, arrival), answer))
        return answers

    async def _one(self, session: aiohttp.ClientSession, data: bytes, answer: Answer) -> None:
        began = time.monotonic()
        headers = {"content-type": "application/json", **self.headers.get(answer.priority, {})}
        try:
            async with session.post(self.url, data=data, headers=headers) as response:
                answer.status = response.status
                told = response.headers
                answer.waited, answer.estimate = _number(told.get(WAITED)), _number(told.get(ESTIMATED))
                answer.retry_after = _number(told.get("retry-after"))
                async for chunk in response.content.iter_any():
                    if answer.ttft is None and response.status == 200 and b"data:" in chunk:
                        answer.ttft = time.monotonic() - began
                answer.whole = True
        except (aiohttp.ClientError, TimeoutError):
            answer.status = 0


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def summary(answers: Sequence[Answer], seconds: float, ttft: float) -> Summary:
    """Return what came of ``answers``, which were asked for over so many seconds; ``ttft`` is what is in time."""
    answered = [one for one in answers if one.status == 200 and one.whole and one.ttft is not None]
    good = sum(one.ttft <= ttft for one in answered if one.ttft is not None)
    pairs = [(one.waited, one.estimate) for one in answered if one.waited is not None and one.estimate is not None]
    return Summary(
        len(answers),
        good,
        good / seconds,
        Percentiles.of([one.ttft for one in answered if one.ttft is not None]),
        dict(sorted(Counter(one.status for one in answers).items())),
        Percentiles.of([one.waited for one in answered if one.waited is not None]),
        Percentiles.of([abs(waited - estimate) for waited, estimate in pairs]),
        Percentiles.of([abs(waited - estimate) / max(LEAST_WAIT, waited) for waited, estimate in pairs]),
    )
