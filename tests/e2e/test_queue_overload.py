"""Five times as many requests as the engines can serve, some more important than others, with a real Envoy."""

import asyncio
import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.e2e.queueing import Answer, ask, client, queueing
from tests.e2e.stack import engines, up
from tidegate.runtime.callers import hashed

SLOTS = 16
"""Requests that each of two engines takes."""

TOKENS = itertools.cycle(range(40, 161, 17))
"""Answers of several lengths: those of one length that begin together would end together."""

SECONDS = 4.0
DEADLINE = 8.0
URGENT_EVERY = 1.0
KEYS = {"gold": "tg-" + "g" * 40, "steel": "tg-" + "s" * 40}
CONTEXT = "word " * 4_000
"""A prompt that takes a third of a second to prefill: the important requests have one."""


async def steadily(begin: Callable[[], asyncio.Task[Answer]], every: float, seconds: float) -> list[Answer]:
    """Begin one request after the other for so many ``seconds``; return all answers."""
    begun, tasks = time.monotonic(), list[asyncio.Task[Answer]]()
    while (now := time.monotonic() - begun) < seconds:
        while len(tasks) * every < now:
            tasks.append(begin())
        await asyncio.sleep(0.005)
    return await asyncio.gather(*tasks)


async def test_the_important_go_first_and_no_capacity_is_lost(tmp_path: Path) -> None:
    with engines(tmp_path, "a100", "a100") as ports:
        config = queueing(ports, max_running=SLOTS, max_wait_seconds=5.0)
        config["tiers"] = [{"name": "gold", "priority": 10}, {"name": "steel", "priority": 0}]
        config["tenants"] = [{"name": name, "tier": name} for name in KEYS]
        config["keys"] = [{"name": name, "tenant": name, "hash": hashed(key)} for name, key in KEYS.items()]
        keys = {name: f"Bearer {key}" for name, key in KEYS.items()}
        with up(tmp_path, config) as stack:
            async with client() as session:
                numbers = itertools.count()

                def small() -> asyncio.Task[Answer]:
                    deadline = str(DEADLINE)
                    asking = ask(session, stack, next(TOKENS), authorization=keys["steel"], x_request_timeout=deadline)
                    return asyncio.create_task(asking)

                def urgent() -> asyncio.Task[Answer]:
                    prompt = f"{next(numbers)} {CONTEXT}"  # which no cache has
                    return asyncio.create_task(ask(session, stack, 10, prompt, authorization=keys["gold"]))

                alone = [await urgent() for _ in range(3)]
                # The peak: as many at a time as there is room for, and the important beside them.
                left = itertools.repeat(None, 2 * 2 * SLOTS)
                began = time.monotonic()
                important = asyncio.create_task(steadily(urgent, URGENT_EVERY, 2.0))

                async def one_after_the_other() -> None:
                    for _ in left:
                        assert (await small()).status == 200

                await asyncio.gather(*(one_after_the_other() for _ in range(2 * SLOTS)))
                peak = 2 * 2 * SLOTS / (time.monotonic() - began)
                await important
                # Five times that.
                began = time.monotonic()
                answers, first = await asyncio.gather(
                    steadily(small, 1 / (5 * peak), SECONDS), steadily(urgent, URGENT_EVERY, SECONDS)
                )
                took = time.monotonic() - began
            statuses = Counter(one.status for one in answers)
            goodput = statuses[200] / took
            usual, pressed = (statistics.median(one.ttft for one in group) for group in (alone, first))
            print(
                f"peak {peak:.1f}/s, goodput {goodput:.1f}/s = {goodput / peak:.0%}, {dict(statuses)} in {took:.1f} s"
            )
            print(f"time to the first token of the important: {usual:.2f} s alone, {pressed:.2f} s under overload")
            print("they waited", [one.headers.get("x-tidegate-queue-seconds", "0") for one in first])
            assert {one.status for one in first} == {200}, "the important are served, all of them"
            assert set(statuses) <= {200, 429, 503, 504}
            assert all(one.whole for one in answers if one.status == 200)
            assert max(one.took for one in answers) < DEADLINE + 2, "nobody is left without an answer"
            assert all(one.headers.get("retry-after") for one in answers if one.status in {429, 503})
            # What this is exactly is found in virtual time (``tests/simulator/virtual/test_overload.py``).
            assert goodput > 0.7 * peak
            assert pressed < 3 * usual
            stack.settle()
            assert stack.total("tidegate_queue_requests") == 0
