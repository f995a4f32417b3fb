"""The fleet that ``tidegate up`` runs when it is given none: four simulated engines of two speeds."""

from typing import NamedTuple

import yaml

MODEL = "sim-llama-3.1-8b"


class DemoEngine(NamedTuple):
    """One simulated engine."""

    profile: str
    port: int


ENGINES = (
    DemoEngine("h100", 8001),
    DemoEngine("h100", 8002),
    DemoEngine("rtx4090", 8003),
    DemoEngine("rtx4090", 8004),
)


def config_text() -> str:
    """Return the configuration of the demo fleet, as a user would write it."""
    return yaml.safe_dump(
        {
            "listener": {"port": 8080},
            "admin": {"port": 9090},
            "pools": [
                {
                    "name": "default",
                    "engine": "vllm",
                    "models": [MODEL],
                    "endpoints": [{"address": f"127.0.0.1:{engine.port}", "gpu": engine.profile} for engine in ENGINES],
                }
            ],
        },
        sort_keys=False,
    )


def engine_arguments() -> list[str]:
    """Return the arguments of ``tidegate engine`` that start the demo fleet."""
    return [
        "--model",
        MODEL,
        *(text for engine in ENGINES for text in ("--port", str(engine.port), "--profile", engine.profile)),
    ]
