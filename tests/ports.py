"""Free ports for tests that run in parallel.

Every process draws one port after the other, from a place of its own, below the range from which the kernel gives ports
to outgoing connections: what is free when it is drawn is still free when the program under test binds it.
"""

import itertools
import os
import socket

FIRST = 20_000
PORTS = 12_000

# Process numbers are close to each other; a multiplier that shares no factor with the count sets them far apart.
_next = (FIRST + port % PORTS for port in itertools.count(os.getpid() * 4_801))


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
