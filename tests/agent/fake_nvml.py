"""A scripted NVML: a table of answers in place of a driver, for what a test wants to say in one line."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """As pynvml's: ``value`` is NVML's number."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def refuse(code: int) -> Callable[..., Any]:
    """Return a function that fails with ``code``."""

    def fail(*_: Any) -> Any:
        raise NVMLError(code)

    return fail


class FakeNvml:
    """One attribute for each function; a test sets them anew as it goes on. Handles are the GPUs' numbers."""

    NVMLError = NVMLError

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.opened = 0
        self.events: list[tuple[int, int]] = []
        self.answers: dict[str, Any] = {
            "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
            "nvmlDeviceGetName": lambda _: "Fake",
            "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=f"00000000:{gpu:02X}:00.0".encode()),
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=100, used=10, free=90),
            "nvmlDeviceGetSupportedEventTypes": lambda _: 8,
            "nvmlDeviceRegisterEvents": lambda *_: None,
            "nvmlSystemGetDriverVersion": lambda: "580.1",
            "nvmlEventSetCreate": object,
            "nvmlEventSetWait_v2": self._wait,
            "nvmlInit": self._init,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: self.gpus,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
        }

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return self.__dict__["answers"].get(name, refuse(3))

    def on(self, gpu: int, name: str, then: Callable[..., Any]) -> None:
        """Have ``name`` do something else on ``gpu``."""
        otherwise = getattr(self, name)
        self.answers[name] = lambda asked, *rest: (then if asked == gpu else otherwise)(asked, *rest)

    def _init(self) -> None:
        self.opened += 1

    def _wait(self, _: object, __: int) -> Any:
        if not self.events:
            threading.Event().wait(0.02)
            raise NVMLError(10)
        gpu, number = self.events.pop(0)
        return SimpleNamespace(device=gpu, eventType=8, eventData=number)
