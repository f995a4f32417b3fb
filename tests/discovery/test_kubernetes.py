"""The source ``kubernetes``, against a stand-in for its API."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.kubernetes_api import (
    OBJECTIVES,
    PODS,
    POOLS,
    REWRITES,
    SLICES,
    KubernetesApi,
    endpoint_slice,
    inference_pool,
    of_pool,
    pod,
)
from tests.discovery.told import Told, telling
from tidegate.config_discovery import KubernetesSource
from tidegate.discovery import kubernetes
from tidegate.discovery.contract import Backoff, Rewrite, Steered, Steering
from tidegate.discovery.kubernetes import Kubernetes
from tidegate.discovery.kubernetes_objects import Table, pods, slices


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "SPACING_SECONDS", 0.05)
    monkeypatch.setattr(Backoff, "failed", lambda _: 0.05)
    monkeypatch.setattr(kubernetes, "SHAPE_SECONDS", 0.1)


@pytest.fixture
async def api() -> AsyncIterator[KubernetesApi]:
    tested = KubernetesApi()
    async with tested.running():
        yield tested


def source(api: KubernetesApi, **more: Any) -> Kubernetes:
    given: dict[str, Any] = {"url": api.url, "namespace": "ml", "token_file": None, "ca": None}
    if not {"service", "inference_pool"} & more.keys():
        given |= {"selector": "app=vllm", "port": 8000}
    return Kubernetes(KubernetesSource.model_validate({**given, **more}), random.Random(1))


async def test_pods_come_and_go_as_they_become_ready_and_leave(api: KubernetesApi) -> None:
    api.put(PODS, pod("a", "10.0.0.1"), pod("b", "10.0.0.2", ready=False), {**pod("c", ""), "status": {}})
    async with telling(source(api)) as told:
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"})
        await told.until(lambda: len(api.watches) == 1)
        second = api.objects[PODS]["b"]
        api.put(PODS, {**second, "status": pod("b", "10.0.0.2")["status"]})
        await told.until(lambda: told.addresses == {"10.0.0.1:8000", "10.0.0.2:8000"})
        first = api.objects[PODS]["a"]
        leaving = {**first["metadata"], "deletionTimestamp": "2026-11-30T00:00:00Z"}
        api.put(PODS, {**first, "metadata": leaving})
        await told.until(lambda: drained(told) == {"10.0.0.1:8000"})
        # It still has an address while its containers end, and none once it is gone.
        api.put(PODS, {**first, "metadata": leaving, "status": pod("a", "10.0.0.1", ready=False)["status"]})
        await asyncio.sleep(0.1)
        assert drained(told) == {"10.0.0.1:8000"}
        api.delete(PODS, "a")
        await told.until(lambda: told.addresses == {"10.0.0.2:8000"})
        api.delete(PODS, "b")
        await told.until(lambda: told.addresses == set())
        assert api.lists == 1, "all of that came by the watch"
        assert told.failures == []


def test_a_pod_that_is_over_has_no_address_of_its_own_any_more() -> None:
    over = pod("a", "10.0.0.1", ready=False, deletionTimestamp="2026-11-30T00:00:00Z")
    over["status"]["phase"] = "Succeeded"
    assert not pods("ml", [8000])(msgspec.json.encode(over))


def drained(told: Told) -> set[str]:
    """Return the addresses of those that are to get nothing new."""
    return {one.endpoint.address for one in told.known.values() if one.endpoint.drain}


async def test_labels_say_engine_role_and_gpu(api: KubernetesApi) -> None:
    labels = {"tidegate.io/engine": "sglang", "tidegate.io/role": "decode", "tidegate.io/gpu": "NVIDIA-H200"}
    api.put(PODS, pod("a", "10.0.0.1", labels=labels))
    async with telling(source(api)) as told:
        await told.until(lambda: told.passes > 0)
        (one,) = told.known.values()
        assert (one.engine, one.endpoint.role, one.endpoint.gpu) == ("sglang", "decode", "h200")


def test_the_node_of_a_pod_is_where_its_gpus_are() -> None:
    read = pods("ml", [8000])
    placed = {**pod("a", "10.0.0.1"), "spec": {"nodeName": "gpu-7"}}
    assert [found.endpoint.node for found in read(msgspec.json.encode(placed)).values()] == ["gpu-7"]
    assert [found.endpoint.node for found in read(msgspec.json.encode(pod("a", "10.0.0.1"))).values()] == [""]


def test_so_is_that_of_an_endpoint_in_a_slice() -> None:
    known, unknown = {"addresses": ["10.0.0.1"], "nodeName": "gpu-7"}, {"addresses": ["10.0.0.2"]}
    found = slices("ml", 8000)(msgspec.json.encode(endpoint_slice("s", "llm", known, unknown)))
    assert [one.endpoint.node for one in found.values()] == ["gpu-7", ""]


async def test_a_deletion_that_a_broken_watch_missed_is_found_by_the_next_list(api: KubernetesApi) -> None:
    api.put(PODS, pod("a", "10.0.0.1"), pod("ghost", "10.0.0.2"))
    async with telling(source(api)) as told:
        await told.until(lambda: len(told.addresses) == 2 and len(api.watches) == 1)
        api.delete(PODS, "ghost", told=False)
        await asyncio.sleep(0.1)
        assert len(told.addresses) == 2
        api.drop()
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"})
        assert api.lists == 2


async def test_a_watch_that_is_silent_for_ever_is_given_up(api: KubernetesApi) -> None:
    api.put(PODS, pod("a", "10.0.0.1"), pod("ghost", "10.0.0.2"))
    async with telling(source(api, relist_seconds=1.0)) as told:
        await told.until(lambda: len(told.addresses) == 2 and len(api.watches) == 1)
        api.silent = True
        api.delete(PODS, "ghost")
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"})
        assert told.failures == []


async def test_a_version_that_is_gone_begins_anew(api: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.put(PODS, pod("a", "10.0.0.1"))
    listed = Kubernetes._list

    async def and_compacted(self: Kubernetes, *arguments: Any) -> tuple[list[bytes], str]:
        """Between the first list and its watch the history is forgotten, and a pod with it."""
        found = await listed(self, *arguments)
        if api.lists == 1:
            api.delete(PODS, "a")
            api.put(PODS, pod("b", "10.0.0.2"))
            api.compact()
        return found

    monkeypatch.setattr(Kubernetes, "_list", and_compacted)
    async with telling(source(api)) as told:
        await told.until(lambda: told.addresses == {"10.0.0.2:8000"})
    assert api.lists == 2
    assert told.failures == []


async def test_late_words_about_a_pod_do_not_concern_the_one_that_has_its_name_now(api: KubernetesApi) -> None:
    api.put(PODS, pod("a", "10.0.0.1"))
    old = api.delete(PODS, "a")
    api.put(PODS, pod("a", "10.0.0.2"), pod("end", "10.0.0.3", ready=False))
    async with telling(source(api)) as told:
        await told.until(lambda: told.addresses == {"10.0.0.2:8000"} and len(api.watches) == 1)
        api.replay("ADDED", PODS, old)
        api.replay("DELETED", PODS, old)
        end = api.objects[PODS]["end"]
        api.put(PODS, {**end, "status": pod("end", "10.0.0.3")["status"]})
        await told.until(lambda: "10.0.0.3:8000" in told.addresses)
        assert told.addresses == {"10.0.0.2:8000", "10.0.0.3:8000"}


async def test_an_address_that_goes_over_to_another_pod_stays(api: KubernetesApi) -> None:
    api.put(PODS, pod("a", "10.0.0.1"))
    async with telling(source(api)) as told:
        await told.until(lambda: told.passes > 0 and len(api.watches) == 1)
        api.put(PODS, pod("b", "10.0.0.1"))
        api.delete(PODS, "a")
        await told.until(lambda: len(told.news) == 3)
        assert told.addresses == {"10.0.0.1:8000"}


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_a_failure_takes_nothing_away(api: KubernetesApi, status: int) -> None:
    api.put(PODS, pod("a", "10.0.0.1"))
    async with telling(source(api)) as told:
        await told.until(lambda: told.passes > 0 and len(api.watches) == 1)
        api.status = status
        api.drop()
        await told.until(lambda: bool(told.failures))
        assert told.failures[0] == f"HTTP {status}"
        assert told.addresses == {"10.0.0.1:8000"}
        api.status = 200
        api.put(PODS, pod("b", "10.0.0.2"))
        await told.until(lambda: len(told.addresses) == 2)


async def test_pods_of_another_namespace_are_not_admitted(api: KubernetesApi) -> None:
    stranger = pod("x", "10.0.0.66")
    stranger["metadata"]["namespace"] = "evil"
    api.put(PODS, stranger, pod("a", "10.0.0.1"))
    async with telling(source(api)) as told:
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"})


async def test_lists_come_in_pages(api: KubernetesApi) -> None:
    api.page = 3
    api.put(PODS, *(pod(f"p{number}", f"10.0.0.{number}") for number in range(1, 11)))
    async with telling(source(api)) as told:
        await told.until(lambda: len(told.addresses) == 10)
    assert api.lists == 1


async def test_an_object_that_cannot_be_read_costs_the_others_nothing(api: KubernetesApi) -> None:
    api.put(PODS, {"metadata": {"name": "odd", "uid": "odd", "labels": {"app": "vllm"}}, "status": "?"})
    api.put(PODS, pod("a", "10.0.0.1"))
    async with telling(source(api)) as told:
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"} and len(api.watches) == 1)
        broken = json.loads(json.dumps(api.objects[PODS]["a"]))
        broken["status"]["podIP"] = 7
        api.put(PODS, broken)
        await told.until(lambda: told.addresses == set())


def endpoint(ip: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [ip], "conditions": conditions}


async def test_the_slices_of_a_service_are_followed(api: KubernetesApi) -> None:
    api.put(
        SLICES,
        endpoint_slice(
            "one",
            "vllm",
            endpoint("10.0.0.1", ready=True),
            endpoint("10.0.0.2", ready=False),
            endpoint("10.0.0.3"),
            endpoint("10.0.0.4", ready=True, terminating=True),
            endpoint("10.0.0.5", ready=False, serving=False, terminating=True),
        ),
        endpoint_slice("six", "vllm", endpoint("fd00::1", ready=True), addressType="IPv6"),
        endpoint_slice("names", "vllm", endpoint("a.example.com"), addressType="FQDN"),
        endpoint_slice("other", "other", endpoint("10.0.0.9", ready=True)),
    )
    async with telling(source(api, service="vllm")) as told:
        staying = {"10.0.0.1:8000", "10.0.0.3:8000", "[fd00::1]:8000"}
        leaving = {"10.0.0.4:8000", "10.0.0.5:8000"}
        await told.until(lambda: told.addresses == staying | leaving)
        assert drained(told) == leaving
        await told.until(lambda: len(api.watches) == 1)
        api.put(SLICES, {**api.objects[SLICES]["one"], "endpoints": [endpoint("10.0.0.2", ready=True)]})
        await told.until(lambda: told.addresses == {"10.0.0.2:8000", "[fd00::1]:8000"})
        api.delete(SLICES, "six")
        await told.until(lambda: told.addresses == {"10.0.0.2:8000"})


async def test_a_port_that_a_slice_does_not_have_is_not_used(api: KubernetesApi) -> None:
    api.put(SLICES, endpoint_slice("one", "vllm", endpoint("10.0.0.1", ready=True)))
    async with telling(source(api, service="vllm", port=9000)) as told:
        await told.until(lambda: told.passes > 0)
        assert told.addresses == set()


def steered(told: Told) -> list[Steered]:
    return [news for news in told.news if isinstance(news, Steered)]


async def test_what_is_said_of_requests_to_an_inference_pool_is_read_again_and_again(
    api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "SHAPE_SECONDS", 0.05)
    api.objects.update({OBJECTIVES: {}, REWRITES: {}})
    api.put(POOLS, inference_pool("llama", {"app": "vllm"}, 8000))
    api.put(OBJECTIVES, of_pool("batch", "llama", priority=-5), of_pool("other", "qwen", priority=9))
    async with telling(source(api, inference_pool="llama")) as told:
        await told.until(lambda: told.passes > 0)
        assert isinstance(told.news[0], Steered), "before the endpoints: nothing is decided without it"
        assert told.news[0].steering == Steering((("batch", -5),))
        rule = {"matches": [{"model": {"value": "food"}}], "targets": [{"modelRewrite": "drink"}]}
        api.put(REWRITES, of_pool("alias", "llama", rules=[rule]))
        rewrite = Rewrite("alias", ("food",), (("drink", 1.0),))
        await told.until(lambda: steered(told)[-1].steering == Steering((("batch", -5),), (rewrite,)))
        # Who may not read them has endpoints all the same.
        api.forbidden.add(OBJECTIVES)
        await told.until(lambda: steered(told)[-1] == Steered(None, "HTTP 403"))
        api.put(PODS, pod("a", "10.0.0.1"))
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"})
        assert told.failures == []


async def test_where_the_resources_are_not_installed_nothing_is_said(api: KubernetesApi) -> None:
    api.put(POOLS, inference_pool("llama", {"app": "vllm"}, 8000))
    async with telling(source(api, inference_pool="llama")) as told:
        await told.until(lambda: told.passes > 0)
        assert steered(told) == [Steered(Steering())]
    async with telling(source(api, selector="app=vllm", port=8000)) as told:
        await told.until(lambda: told.passes > 0)
        assert steered(told) == []


async def test_an_inference_pool_chooses_pods_and_ports_and_may_change_its_mind(api: KubernetesApi) -> None:
    api.put(PODS, pod("a", "10.0.0.1", labels={"m": "x"}), pod("b", "10.0.0.2", labels={"m": "y"}))
    api.put(POOLS, inference_pool("llama", {"app": "vllm", "m": "x"}, 3000, 3001))
    async with telling(source(api, inference_pool="llama")) as told:
        await told.until(lambda: told.addresses == {"10.0.0.1:3000", "10.0.0.1:3001"})
        await told.until(lambda: len(api.watches) == 1)
        api.put(POOLS, inference_pool("llama", {"m": "y"}, 3000))
        await told.until(lambda: told.addresses == {"10.0.0.2:3000"})
        # A pool that is gone, or selects nothing, says nothing of pods.
        api.put(POOLS, inference_pool("llama", {}, 3000))
        await told.until(lambda: bool(told.failures))
        api.delete(POOLS, "llama")
        await told.until(lambda: "HTTP 404" in told.failures)
        assert told.addresses == {"10.0.0.2:3000"}


async def test_the_token_is_sent_and_read_anew(api: KubernetesApi, tmp_path: Path) -> None:
    api.token = "s3cret"
    api.put(PODS, pod("a", "10.0.0.1"))
    file = tmp_path / "token"
    file.write_text("old")
    async with telling(source(api, token_file=str(file))) as told:
        await told.until(lambda: "HTTP 401" in told.failures)
        file.write_text("s3cret\n")
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"})
    assert "s3cret" not in repr(told.news)


async def test_a_list_that_is_asked_for_is_made_soon(api: KubernetesApi) -> None:
    api.put(PODS, pod("a", "10.0.0.1"))
    async with telling(source(api)) as told:
        await told.until(lambda: len(api.watches) == 1)
        told.asked.set()
        await told.until(lambda: told.passes == 2)


STORIES = st.lists(
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), st.integers(1, 4), st.integers(0, 4))
)


@given(st.lists(st.integers(1, 4), unique=True), STORIES)
def test_whatever_a_watch_tells_the_endpoints_are_those_of_the_objects_that_are_left(
    listed: list[int], story: list[tuple[str, int, int]]
) -> None:
    """Each pod has one address at a time, or, as 0, none; deletions of pods that are not there are harmless."""
    told, table, version = Told(), Table(pods("ml", [8000])), 10

    def one(number: int, ip: int) -> bytes:
        return json.dumps(
            {
                "metadata": {"uid": f"u{number}", "namespace": "ml", "resourceVersion": str(version)},
                "status": {"podIP": f"10.0.0.{ip}" if ip else "", "conditions": [{"type": "Ready", "status": "True"}]},
            }
        ).encode()

    left = dict.fromkeys(listed, 9)
    told.news.append(table.listed([one(number, 9) for number in listed], "10"))
    for kind, number, ip in story:
        version += 1
        told.news += table.told(b'{"type":"%s","object":%s}' % (kind.encode(), one(number, ip)))
        if kind == "DELETED":
            left.pop(number, None)
        elif kind != "BOOKMARK":
            left[number] = ip
    assert told.addresses == {f"10.0.0.{ip}:8000" for ip in left.values() if ip}


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"type":"ADDED","object":7}', b'{"type":"ADDED"}'])
def test_what_is_no_event_ends_the_watch_with_a_reason(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Table(pods("ml", [1])).told(line)
