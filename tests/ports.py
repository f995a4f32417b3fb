"""Free ports for tests that run in parallel.

Each pytest-xdist worker draws from a block of its own, below the range from which the kernel gives ports to outgoing
connections: what is free when it is drawn is still free when the program under test binds it.
"""

import itertools
import os
import socket

FIRST = 20_000
BLOCK = 1_000


def _block() -> "itertools.count[int]":
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    # The process number keeps two test runs on one machine apart, most of the time.
    return itertools.count(FIRST + BLOCK * (worker % 12) + os.getpid() % 10 * (BLOCK // 20))


_next = _block()


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nobody listens on and that no other test was given."""
    for port in _next:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the count does not end")
