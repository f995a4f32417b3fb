"""A process that asks and asks: ``python -m tests.sharing.asker PORT SECONDS``; prints when it was let in."""

import asyncio
import json
import sys
import time

from tests.sharing.replica import SCOPE, Replica, per_minute

RATE, BURST = 50, 150
"""What all may use: requests a second, and at once."""

PAUSE_SECONDS = 0.005


async def ask(port: int, seconds: float) -> None:
    """Ask twice as fast as all may, together or alone; print the moments of what was let in, by the common clock."""
    one = Replica(port, {SCOPE: [per_minute(60 * RATE, BURST)]}, call=0.05, replicas=3)
    granted, longest = [], 0.0
    async with one.running():
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            if (await one.take()).exceeded is None:
                granted.append(now)
            longest = max(longest, time.monotonic() - now)
            await asyncio.sleep(PAUSE_SECONDS)
    print(json.dumps({"granted": granted, "longest": longest, "alone": one.counts.alone}))


if __name__ == "__main__":
    asyncio.run(ask(int(sys.argv[1]), float(sys.argv[2])))
