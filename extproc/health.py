"""What health checks of a service are answered with, whatever the transport."""

import asyncio
from collections.abc import Collection


class Health:
    """SERVING or not, under one name or several. It changes nothing but the answer: Envoy then asks others.

    Attributes:
        names: the services by whose names health is asked for; the empty one stands for the whole server.
        serving: whether it is SERVING.
        changed: set with every change.
    """

    def __init__(self, names: Collection[str] = ("",), *, serving: bool = True) -> None:
        self.names = frozenset(names)
        self.serving = serving
        self.changed = asyncio.Event()

    def say(self, *, serving: bool) -> None:
        """Answer with SERVING or NOT_SERVING from now on."""
        self.serving = serving
        self.changed.set()
