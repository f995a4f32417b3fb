"""What InferenceObjectives and InferenceModelRewrites say of the requests to a pool."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.discovery.contract import Rewrite, Steering
from tidegate.discovery.steering import steering

POOL = {"group": "inference.networking.k8s.io", "name": "llama"}


def made(name: str, spec: dict[str, Any], **meta: Any) -> bytes:
    meta = {"name": name, "namespace": "ml", "creationTimestamp": "2026-11-01T00:00:00Z", **meta}
    return json.dumps({"metadata": meta, "spec": {"poolRef": POOL, **spec}}).encode()


def rule(*models: str, **weights: int | None) -> dict[str, Any]:
    targets = [
        {"modelRewrite": name, **({} if weight is None else {"weight": weight})} for name, weight in weights.items()
    ]
    matches = [{"model": {"type": "Exact", "value": model}} for model in models]
    return {"targets": targets, **({"matches": matches} if matches else {})}


def rewrites(*texts: bytes) -> tuple[Rewrite, ...]:
    return steering("ml", "llama", (), texts).rewrites


def test_objectives_of_the_pool_have_their_priority_or_none() -> None:
    said = [
        made("batch", {"priority": -10}),
        made("plain", {}),
        made("huge", {"priority": 2_000_000_000}),
        made("elsewhere", {"priority": 9, "poolRef": {"name": "other"}}),
        made("alpha", {"priority": 9, "poolRef": {"group": "inference.networking.x-k8s.io", "name": "llama"}}),
        made("foreign", {"priority": 9}, namespace="other"),
        made("leaving", {"priority": 9}, deletionTimestamp="2026-11-30T00:00:00Z"),
        made("batch", {"priority": 5}),
        made("broken", {"priority": "high"}),
        b"no object",
    ]
    assert steering("ml", "llama", said, ()) == Steering((("batch", -10), ("plain", 0), ("huge", 100)))


def test_a_rewrite_names_models_and_targets_with_their_shares() -> None:
    said = made("canary", {"rules": [rule("food", "drink", stable=90, canary=10)]})
    assert rewrites(said) == (Rewrite("canary", ("food", "drink"), (("stable", 90.0), ("canary", 10.0))),)


def test_without_any_weights_all_targets_are_alike_and_beside_weights_one_without_gets_nothing() -> None:
    (alike,) = rewrites(made("a", {"rules": [rule("m", x=None, y=None)]}))
    assert alike.targets == (("x", 1.0), ("y", 1.0))
    (mixed,) = rewrites(made("a", {"rules": [rule("m", x=7, y=None)]}))
    assert mixed.targets == (("x", 7.0), ("y", 0.0))


def test_what_names_models_comes_first_then_the_older_resource_then_its_own_order() -> None:
    young = made("young", {"rules": [rule(x=1), rule("m", y=1)]}, creationTimestamp="2026-11-09T00:00:00Z")
    old = made("old", {"rules": [rule("n", z=1), rule("m", w=1)]}, creationTimestamp="2026-11-02T00:00:00Z")
    assert [(one.name, one.models) for one in rewrites(young, old)] == [
        ("old", ("n",)),
        ("old", ("m",)),
        ("young", ("m",)),
        ("young", ()),
    ]


def test_what_cannot_be_meant_is_left_out_and_never_widened() -> None:
    assert rewrites(made("a", {"rules": [rule("llama-*", x=1)]})) == (), "* stands for itself there, and for all here"
    assert rewrites(made("a", {"rules": [rule("m", **{"two words": 1})]})) == ()
    assert rewrites(made("a", {"rules": [rule("m", x=0)]})) == ()
    pattern = {"matches": [{"model": {"type": "Regex", "value": "."}}], "targets": [{"modelRewrite": "x"}]}
    assert rewrites(made("a", {"rules": [pattern]})) == ()
    assert rewrites(made("a", {"rules": "none"}), made("b", {"rules": [rule("m", x=1)]}))[0].name == "b"


@given(st.lists(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_whatever_objects_are_nothing_is_made_of_what_is_none(texts: list[bytes | str]) -> None:
    raw = [text if isinstance(text, bytes) else text.encode() for text in texts]
    assert steering("ml", "llama", raw, raw) == Steering()
