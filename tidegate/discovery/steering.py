"""What Kubernetes' resources say of the requests to an InferencePool: pure.

``InferenceObjective`` gives a priority a name, ``InferenceModelRewrite`` gives models other names inside the pool; both
as in llm-d-router and, before that, in the Gateway API Inference Extension (``v1alpha2``).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tidegate.discovery import nested
from tidegate.discovery.contract import Rewrite, Steering

GROUPS: Final = ("llm-d.ai", "inference.networking.x-k8s.io")
"""The API groups of the resources, the newer one first."""

OBJECTIVES, REWRITES = "inferenceobjectives", "inferencemodelrewrites"

POOL_GROUPS: Final = frozenset({"", "inference.networking.k8s.io"})

MAX_OBJECTIVES, MAX_REWRITES, MAX_TARGETS = 1_000, 200, 16
"""What counts of one pool's; rewrites are looked through one after the other."""

MAX_WEIGHT: Final = 1_000_000
"""The largest weight of a target, by the API."""

MOST_URGENT: Final = 100
"""The highest priority, and without its sign the lowest, that a request may have."""

_NAME: Final = re.compile(r"[!-~]{1,253}", re.ASCII)
"""Names of objects; what holds the API is stricter, and we do not rely on it."""

_MODEL: Final = re.compile(r"[!-)+-~]{1,256}", re.ASCII)
"""Names that mean themselves: without ``*``, which stands for others where models are looked for."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class _PoolRef(msgspec.Struct):
    name: str = ""
    group: str = ""
    kind: str = "InferencePool"


class _ObjectiveSpec(msgspec.Struct, rename="camel"):
    pool_ref: _PoolRef
    priority: int | None = None


class _Objective(msgspec.Struct):
    metadata: _Meta
    spec: _ObjectiveSpec


class _ModelMatch(msgspec.Struct):
    value: str
    type: str = "Exact"


class _Match(msgspec.Struct):
    model: _ModelMatch | None = None


class _Target(msgspec.Struct, rename="camel"):
    model_rewrite: str
    weight: int | None = None


class _Rule(msgspec.Struct):
    targets: list[_Target]
    matches: list[_Match] | None = None


class _RewriteSpec(msgspec.Struct, rename="camel"):
    pool_ref: _PoolRef
    rules: list[_Rule]


class _ModelRewrite(msgspec.Struct):
    metadata: _Meta
    spec: _RewriteSpec


def steering(namespace: str, pool: str, objectives: Iterable[bytes], rewrites: Iterable[bytes]) -> Steering:
    """Return what the objects say of ``pool`` in ``namespace``; one that cannot be read costs the others nothing.

    A rewrite that names models comes before one for all of them; among equals that of the older resource, then that
    which stands first in it.
    """

    def ours(meta: _Meta, ref: _PoolRef) -> bool:
        of_pool = ref.name == pool and ref.group in POOL_GROUPS and ref.kind == "InferencePool"
        return (
            of_pool and bool(_NAME.fullmatch(meta.name)) and meta.namespace == namespace and not meta.deletion_timestamp
        )

    known: dict[str, int] = {}
    for text in objectives:
        try:
            objective = nested.decode(text, _Objective)
        except msgspec.DecodeError:
            continue
        # Of one that is told in both groups, the newer group's counts.
        if ours(objective.metadata, objective.spec.pool_ref) and len(known) < MAX_OBJECTIVES:
            priority = objective.spec.priority or 0
            known.setdefault(objective.metadata.name, min(max(priority, -MOST_URGENT), MOST_URGENT))
    found: dict[str, _ModelRewrite] = {}
    for text in rewrites:
        try:
            rewrite = nested.decode(text, _ModelRewrite)
        except msgspec.DecodeError:
            continue
        if ours(rewrite.metadata, rewrite.spec.pool_ref):
            found.setdefault(rewrite.metadata.name, rewrite)
    # Times are written as RFC 3339 in UTC, which sorts as text.
    oldest_first = sorted(found.values(), key=lambda one: (one.metadata.creation_timestamp, one.metadata.name))
    rules = [rule for one in oldest_first for rule in _rules(one)]
    rules.sort(key=lambda rule: not rule.models)
    return Steering(tuple(known.items()), tuple(rules[:MAX_REWRITES]))


def _rules(rewrite: _ModelRewrite) -> Iterator[Rewrite]:
    for rule in rewrite.spec.rules:
        matches = [match.model for match in rule.matches or () if match.model is not None]
        models = [match.value for match in matches if match.type == "Exact" and _MODEL.fullmatch(match.value)]
        targets = [target for target in rule.targets[:MAX_TARGETS] if _MODEL.fullmatch(target.model_rewrite)]
        weighted = any(target.weight is not None for target in targets)
        shares = tuple(
            (target.model_rewrite, float(min(max(0, target.weight or 0), MAX_WEIGHT)) if weighted else 1.0)
            for target in targets
        )
        # Models of which none can be read are not all models.
        if any(weight for _, weight in shares) and (models or not rule.matches):
            yield Rewrite(rewrite.metadata.name, tuple(dict.fromkeys(models)), shares)
