"""What labels say of an endpoint: its role, engine, GPU and the like, the same for every directory that has labels.

A label with a value that means nothing to us says nothing: a typing error in one of them must not cost an endpoint.
"""

import re
from collections.abc import Mapping
from typing import get_args

from tidegate import config_agents
from tidegate.config_values import Engine
from tidegate.discovery.contract import Found
from tidegate.fleet import gpu
from tidegate.fleet.endpoint import EndpointSpec

MAX_WEIGHT, MAX_RUNNING, MAX_MODELS, MAX_PRODUCT = 1000, 100_000, 100, 100
MAX_GPUS = 64
NODE, GPU = re.compile(config_agents.NODE, re.ASCII), re.compile(config_agents.GPU, re.ASCII)
ROLES, ENGINES = frozenset({"both", "prefill", "decode"}), frozenset(get_args(Engine))


def found(address: str, labels: Mapping[str, str], prefix: str, weight: int = 1, node: str = "") -> Found:
    """Return the endpoint at ``address``, as ``labels`` that begin with ``prefix`` describe it.

    They are ``role``, ``engine``, ``gpu``, ``weight`` (``weight`` where none says it), ``max-running``, ``node``
    (likewise), ``drain``, which is ``true`` or says nothing, and ``gpus`` and ``models``, whose names are separated by
    commas.
    """

    def said(name: str) -> str:
        return labels.get(f"{prefix}{name}", "").strip()

    role, engine = said("role"), said("engine")
    gpus = tuple(uuid for part in said("gpus").split(",")[:MAX_GPUS] if GPU.fullmatch(uuid := part.strip()))
    host = said("node") or node
    models = tuple(name for model in said("models").split(",")[:MAX_MODELS] if (name := model.strip()))
    return Found(
        EndpointSpec(
            address,
            number(said("weight"), MAX_WEIGHT) or min(max(weight, 1), MAX_WEIGHT),
            role if role in ROLES else "both",
            models,
            number(said("max-running"), MAX_RUNNING),
            gpu_class(said("gpu")),
            host if NODE.fullmatch(host) else "",
            gpus,
            drain=said("drain").lower() == "true",
        ),
        engine if engine in ENGINES else "",
    )


def number(text: str, most: int) -> int | None:
    """Return the whole number in ``text``, 1 to ``most``; ``None`` when it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        return None
    value = int(text)
    return value if 1 <= value <= most else None


def gpu_class(text: str) -> str:
    """Return the class of GPU that a product's name stands for, such as ``NVIDIA-H100-80GB-HBM3``; empty for none."""
    product = text.lower()[:MAX_PRODUCT]
    named = (name for name, parts in _CLASSES.items() if all(part.search(product) for part in parts))
    return max(named, key=len, default="")


def _pattern(part: str) -> re.Pattern[str]:
    """Return what finds ``part``, such as ``rtx4090``, as words of their own: ``RTX-4090``, and not ``RTX 40900``."""
    pieces = "[^a-z0-9]?".join(re.findall("[a-z]+|[0-9]+", part))
    return re.compile(f"(?<![a-z0-9]){pieces}(?![a-z0-9])")


_CLASSES = {name: [_pattern(part) for part in name.split("-")] for name in gpu.PRIORS}
