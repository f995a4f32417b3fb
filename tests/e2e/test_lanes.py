"""Lanes with a real Envoy: large prompts keep to their engine, and small ones come by them."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.stack import Stack, configuration, engines, up

LARGE = "word " * 16_000
"""About 16,000 tokens: on a simulated 4090, nearly three seconds of prefill."""


def served(stack: Stack, content: str) -> tuple[str, float]:
    """Return who answered, and how many seconds that took."""
    began = time.monotonic()
    status, answer, headers = stack.ask(content, max_tokens=1)
    assert status == 200, answer
    return headers["x-served-by"], time.monotonic() - began


def test_large_prompts_keep_to_their_lane_and_small_ones_do_not_wait_behind_them(tmp_path: Path) -> None:
    with engines(tmp_path, "rtx4090", "rtx4090", "rtx4090") as ports, ThreadPoolExecutor(3) as clients:
        config = configuration(ports, policy="round_robin")
        lane = f"127.0.0.1:{ports[1]}"
        config["pools"][0]["lanes"] = [{"above_tokens": 8_000, "endpoints": [lane]}]
        with up(tmp_path, config) as stack:
            large = clients.submit(served, stack, f"first {LARGE}")
            time.sleep(0.5)  # it is being prefilled
            small = [served(stack, f"hello {number}") for number in range(6)]
            address, seconds = large.result()
            assert address == lane
            assert seconds > 2.0
            assert lane not in {where for where, _ in small}
            assert len({where for where, _ in small}) == 2
            assert statistics.median(took for _, took in small) < seconds / 4
            # Two at a time: the second does not wait while another engine has nothing to do.
            stack.settle()
            pair = [clients.submit(served, stack, f"{number} {LARGE}") for number in range(2)]
            where = {one.result()[0] for one in pair}
            assert lane in where
            assert len(where) == 2
            # An idle engine of the lane serves small ones too: round robin comes to all three.
            stack.settle()
            assert {served(stack, f"again {number}")[0] for number in range(9)} == {f"127.0.0.1:{at}" for at in ports}
