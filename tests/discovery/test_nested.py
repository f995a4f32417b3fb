"""An object of a directory that is nested too deeply costs itself alone, and not the whole pass."""

import json
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.consul_api import ConsulApi, instance
from tests.discovery.kubernetes_api import OBJECTIVES, PODS, POOLS, KubernetesApi, inference_pool, of_pool, pod
from tests.discovery.test_consul import source as consul_source
from tests.discovery.test_kubernetes import source, steered
from tests.discovery.told import telling
from tidegate.discovery import http, nested
from tidegate.discovery.consul import parse
from tidegate.discovery.contract import Steering
from tidegate.discovery.file import Unusable
from tidegate.discovery.file import parse as parse_file
from tidegate.discovery.kubernetes_objects import Shape, Table, pods
from tidegate.discovery.kubernetes_objects import inference_pool as shape
from tidegate.discovery.nested import MAX_DEPTH, cut, decode
from tidegate.discovery.steering import steering

LEVELS = 5_000
DEEP = (b"[" * LEVELS + b"]" * LEVELS, b'{"a":' * LEVELS + b"1" + b"}" * LEVELS)
MARK = "too deep"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def with_deep(value: Any, deep: bytes = DEEP[0]) -> bytes:
    """Return ``value`` as JSON, with what is too deep for its ``MARK``."""
    return json.dumps(value).encode().replace(f'"{MARK}"'.encode(), deep)


@given(JSON)
def test_what_is_not_too_deep_stays_as_it_is(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        if text.count("[") + text.count("{") <= MAX_DEPTH:
            assert cut(text.encode()) == text.encode()


@given(before=JSON, after=JSON, deep=st.sampled_from(DEEP))
def test_what_is_beside_it_is_read(before: Any, after: Any, deep: bytes) -> None:
    found = decode(with_deep({"before": before, "x": [1, MARK, 2], "after": after}, deep), dict[str, Any])
    assert (found["before"], found["after"]) == (before, after)
    one, left, two = found["x"]
    assert (one, two) == (1, 2)
    depth = 0
    while left:
        depth, left = depth + 1, left["a"] if isinstance(left, dict) else left[0]
    assert depth == MAX_DEPTH - 2


@given(text=st.text('[]{}"\\\\,:a', max_size=60).map(str.encode))
def test_no_text_is_made_one_that_it_is_not(text: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nested, "MAX_DEPTH", 3)
        left = cut(text)
    try:
        msgspec.json.decode(left)
    except msgspec.DecodeError:
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(text)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * LEVELS + b'"' + b'\\"' * 500_000])
def test_what_never_ends_is_no_json(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(text, list[msgspec.Raw])


@pytest.mark.parametrize("deep", DEEP)
def test_objectives_and_rewrites_are_read_beside_one_that_is_too_deep(deep: bytes) -> None:
    objectives = [
        with_deep(one, deep)
        for one in (
            of_pool("a", "llama", priority=1),
            of_pool("b", "llama", priority=MARK),
            {**of_pool("c", "llama", priority=3), "x": MARK},
        )
    ]
    rules = [{"targets": [{"modelRewrite": "big"}]}]
    rewrites = [with_deep(of_pool("odd", "llama", rules=[MARK]), deep), with_deep(of_pool("r", "llama", rules=rules))]
    found = steering("ml", "llama", objectives, rewrites)
    assert found.objectives == (("a", 1), ("c", 3))
    assert [one.name for one in found.rewrites] == ["r"]


@pytest.mark.parametrize("deep", DEEP)
def test_pods_are_found_beside_one_that_is_too_deep(deep: bytes) -> None:
    table = Table(pods("ml", [8000]))
    odd, more = {**pod("odd", "10.0.0.1"), "status": MARK}, {**pod("more", "10.0.0.2"), "spec": {"x": MARK}}
    items = [with_deep(one, deep) for one in (odd, more, pod("plain", "10.0.0.3"))]
    assert {one.endpoint.address for one in table.listed(items, "1").found.values()} == {
        "10.0.0.2:8000",
        "10.0.0.3:8000",
    }
    for number, one in enumerate((odd, {"metadata": MARK}, {"metadata": {"uid": MARK}})):
        event = with_deep({"type": "ADDED", "object": one, "x": number}, deep)
        assert table.told(event) == []
    assert len(table.told(with_deep({"type": "ADDED", "object": pod("new", "10.0.0.4"), "x": MARK}, deep))) == 1


@pytest.mark.parametrize("deep", DEEP)
def test_an_inference_pool_says_what_it_says_beside_what_is_too_deep(deep: bytes) -> None:
    one = inference_pool("llama", {"app": "vllm"}, 8000)
    assert shape(with_deep({**one, "status": MARK}, deep), "ml") == Shape("app=vllm", (8000,))


@pytest.mark.parametrize("deep", DEEP)
def test_instances_are_found_beside_one_that_is_too_deep(deep: bytes) -> None:
    odd = {**instance(1), "Checks": MARK}
    found = parse(with_deep([odd, {**instance(2), "x": MARK}, MARK, instance(3)], deep), "passing")
    assert found == parse(json.dumps([instance(2), instance(3)]).encode(), "passing")
    assert len(found.found) == 2


@pytest.mark.parametrize("deep", DEEP)
def test_a_file_that_is_too_deep_is_refused(deep: bytes) -> None:
    with pytest.raises(Unusable, match="nested deeper"):
        parse_file(b"endpoints: " + deep)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all that is answered be too deep where the ``MARK`` is."""
    body = http.body

    async def marked(answer: aiohttp.ClientResponse) -> bytes:
        return (await body(answer)).replace(json.dumps(MARK).encode(), DEEP[0])

    monkeypatch.setattr(http, "body", marked)


@pytest.mark.usefixtures("answers")
async def test_kubernetes_goes_on_beside_one_that_is_too_deep() -> None:
    api = KubernetesApi()
    async with api.running():
        api.put(POOLS, inference_pool("llama", {"app": "vllm"}, 8000))
        api.put(PODS, {**pod("odd", "10.0.0.1"), "status": MARK}, pod("plain", "10.0.0.2"))
        api.objects[OBJECTIVES] = {}
        api.put(OBJECTIVES, {**of_pool("odd", "llama", priority=3), "x": MARK}, of_pool("plain", "llama", priority=1))
        async with telling(source(api, inference_pool="llama")) as told:
            await told.until(lambda: told.addresses == {"10.0.0.2:8000"})
            assert steered(told)[-1].steering == Steering((("odd", 3), ("plain", 1)))


@pytest.mark.usefixtures("answers")
async def test_consul_goes_on_beside_one_that_is_too_deep() -> None:
    api = ConsulApi()
    async with api.running():
        api.set(7, {**instance(1), "Node": MARK}, instance(2))
        async with telling(consul_source(api)) as told:
            await told.until(lambda: len(told.addresses) == 1)
