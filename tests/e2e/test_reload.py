"""Changes of the configuration while requests run: each takes effect, and none costs a request."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.stack import Stack, configuration, engines, fetch, until, up


@contextmanager
def asking(stack: Stack, threads: int = 4) -> Iterator[Counter[int]]:
    """Send requests without a pause; yield how they ended, by status."""
    over = threading.Event()
    statuses: Counter[int] = Counter()

    def ask() -> None:
        while not over.is_set():
            statuses[stack.ask(max_tokens=2)[0]] += 1

    running = [threading.Thread(target=ask) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in running:
            thread.join()


def _envoy_has(stack: Stack, pool: str) -> bool:
    return f"\n{pool}::" in "\n" + fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/clusters")[1]


def test_a_pool_that_is_renamed_added_or_removed_costs_no_request(tmp_path: Path) -> None:
    """Decisions name a pool; Envoy must know it before they do, and as long as they do."""
    with engines(tmp_path, "h100", "h100") as ports, up(tmp_path, configuration(ports[:1])) as stack:
        pools = stack.config["pools"]
        with asking(stack) as statuses:
            for name in ("one", "two", "three", "four"):
                old, pools[0]["name"] = pools[0]["name"], name
                stack.write_config()
                until(lambda old=old: not _envoy_has(stack, old), 10, "the old pool is gone")  # type: ignore[misc]
                assert _envoy_has(stack, name)
            second = {"name": "second", "models": ["sim-*"], "endpoints": [{"address": f"127.0.0.1:{ports[1]}"}]}
            pools.append(second)
            stack.write_config()
            until(lambda: stack.total("tidegate_picks_total", pool="second") > 20, 10, "the new pool serves")
            pools.pop()
            stack.write_config()
            until(lambda: not _envoy_has(stack, "second"), 10, "the second pool is gone")
        assert statuses.keys() == {200}, statuses
        assert stack.total("tidegate_config_reloads_total", result="success") == 6
        until(lambda: stack.inflight() == {}, 20, "nothing is in flight")
        _bad_files_change_nothing(stack)


def _bad_files_change_nothing(stack: Stack) -> None:
    """Half a file, and a whole one that cannot be: the last good one goes on, and everybody can see that it does."""
    good = stack.config_file.read_text()
    for bad in (
        "pools: [",
        good.replace("port: ", "port: !!python/object/apply:os.getpid ", 1),
        good + "surprise: 1\n",
    ):
        stack.config_file.write_text(bad)
        until(lambda: stack.total("tidegate_config_last_reload_success") == 0, 20, "it is refused")
        assert stack.ask()[0] == 200
        stack.config_file.write_text(good)
        until(lambda: stack.total("tidegate_config_last_reload_success") == 1, 20, "the good one is taken again")
    assert stack.log().count("configuration refused, the last good one goes on") == 3
