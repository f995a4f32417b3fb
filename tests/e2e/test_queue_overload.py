"""Five times as many requests as the engines can serve, some more important than others, with a real Envoy."""

import asyncio
import itertools
import time
from collections import Counter
from pathlib import Path

from tests.e2e.queueing import Answer, ask, client, queueing
from tests.e2e.stack import engines, up
from tidegate.runtime.callers import hashed

SLOTS = 16
"""Requests that each of two engines takes."""

TOKENS = 100
SECONDS = 6.0
DEADLINE = 8.0
KEYS = {"gold": "tg-" + "g" * 40, "steel": "tg-" + "s" * 40}
CONTEXT = "word " * 6_000
"""A prompt that takes half a second to prefill: the important requests have one."""


async def test_the_important_go_first_and_no_capacity_is_lost(tmp_path: Path) -> None:
    with engines(tmp_path, "a100", "a100") as ports:
        config = queueing(ports, max_running=SLOTS, max_wait_seconds=5.0)
        config["tiers"] = [{"name": "gold", "priority": 10}, {"name": "steel", "priority": 0}]
        config["tenants"] = [{"name": name, "tier": name} for name in KEYS]
        config["keys"] = [{"name": name, "tenant": name, "hash": hashed(key)} for name, key in KEYS.items()]
        with up(tmp_path, config) as stack:
            async with client() as session:
                authorization = {name: f"Bearer {key}" for name, key in KEYS.items()}

                def small() -> asyncio.Task[Answer]:
                    headers = {"authorization": authorization["steel"], "x_request_timeout": str(DEADLINE)}
                    return asyncio.create_task(ask(session, stack, TOKENS, **headers))

                numbers = itertools.count()

                def important() -> asyncio.Task[Answer]:
                    prompt = f"{next(numbers)} {CONTEXT}"  # which no cache has
                    return asyncio.create_task(ask(session, stack, 10, prompt, authorization=authorization["gold"]))

                alone = [await important() for _ in range(8)]
                # The peak: as many at a time as there is room for.
                began, left = time.monotonic(), itertools.repeat(None, 4 * 2 * SLOTS)

                async def again() -> None:
                    for _ in left:
                        assert (await small()).status == 200

                await asyncio.gather(*(again() for _ in range(2 * SLOTS)))
                peak = 4 * 2 * SLOTS / (time.monotonic() - began)
                # Five times that.
                asked: list[asyncio.Task[Answer]] = []
                urgent: list[asyncio.Task[Answer]] = []
                began = time.monotonic()
                while (now := time.monotonic() - began) < SECONDS:
                    while len(asked) < 5 * peak * now:
                        asked.append(small())
                    while len(urgent) < 2 * now:
                        urgent.append(important())
                    await asyncio.sleep(0.005)
                ended = [0.0]
                for task in asked:
                    task.add_done_callback(lambda _: ended.append(time.monotonic() - began))
                answers = await asyncio.gather(*asked)
                important_ones = await asyncio.gather(*urgent)
                took = time.monotonic() - began
                print(peak, len(asked), Counter(one.status for one in answers), took)
                good = sum(one.whole for one in answers)
                print("goodput", good / took, good / took / peak)
                print("ttft", sorted(one.ttft for one in alone), sorted(one.ttft for one in important_ones))
                print(max(one.took for one in answers))
