"""``tidegate explain --live`` against a whole Tidegate: what it says is what then happens."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import MODEL, ROOT, Stack, configuration, engines, tidegate, up
from tests.e2e.workers import with_workers


def explained(stack: Stack, *arguments: str) -> dict[str, Any]:
    address = f"127.0.0.1:{stack.config['admin']['port']}"
    command = tidegate("explain", "--live", "--json", "--admin", address, "--model", MODEL, *arguments)
    told = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=30, check=True)
    return dict(json.loads(told.stdout))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_next_request_goes_where_it_was_said_to_go(tmp_path: Path, workers: int) -> None:
    with engines(tmp_path, "h100", "h100") as ports:
        policy = "prefix_affinity"
        config = configuration(ports, policy) if workers == 1 else with_workers(ports, workers, policy)
        with up(tmp_path, config) as stack:
            prompt = "the beginning of a prompt that many have in common " * 40
            assert stack.ask(prompt, max_tokens=2)[0] == 200
            stack.settle()
            before = stack.total("tidegate_requests_total")

            told = explained(stack, "--prompt", prompt + "and an end of its own")
            assert (told["policy"], told["members"], len(told["order"])) == (policy, 2, 2)
            assert told["prompt_tokens"] == pytest.approx(400, rel=0.4)

            status, _, headers = stack.ask(prompt, max_tokens=2)
            assert (status, headers["x-served-by"]) == (200, told["pick"])
            stack.settle()
            assert stack.total("tidegate_requests_total") == before + 1, "what is only asked about is no request"
