"""Subset hints: case 34 of the reference suite, decided by the protocol, and what no suite covers."""

from typing import Any

import pytest

from tests.conformance.endpoint_picker.messages import HEADERS, completion
from tests.conformance.endpoint_picker.picker import Picker
from tests.conformance.endpoint_picker.pods import Pods


async def test_without_a_hint_all_endpoints_may_be_picked(picker: Picker, pods: Pods) -> None:
    """Case 34: no metadata."""
    for number in range(3):
        loads = [(0 if number == place else 20, 0.1) for place in range(3)]
        known = await pods.tell(*loads)
        assert (await picker.route(completion())).pick == known[number]


async def test_an_empty_list_allows_nobody(picker: Picker) -> None:
    """Case 34: list empty."""
    assert (await picker.reject(completion(), subset=[])).status == 503


async def test_what_is_no_text_in_a_list_names_nobody(picker: Picker, pods: Pods) -> None:
    """Case 34: non-string entries."""
    known = await pods.tell((0, 0.1), (0, 0.1), (0, 0.1))
    assert set((await picker.route(completion(), subset=[1, None, known[2]])).destinations) == {known[2]}
    assert (await picker.reject(completion(), subset=[1, None, {"a": known[2]}])).status == 503


async def test_another_port_is_another_endpoint(picker: Picker, pods: Pods) -> None:
    """Case 34: wrong port."""
    host = pods.addresses[0].rpartition(":")[0]
    assert (await picker.reject(completion(), subset=[f"{host}:1"])).status == 503


@pytest.mark.parametrize("hint", [7, True, {"list": ["10.0.0.1:1"]}, "10.255.255.1:1", "nonsense"])
async def test_a_hint_that_cannot_be_read_is_not_the_same_as_none(picker: Picker, hint: Any) -> None:
    """Case A: malformed subset."""
    assert (await picker.reject(completion(), subset=hint)).status == 503


async def test_a_text_with_commas_is_a_list_or_nothing(picker: Picker, pods: Pods) -> None:
    """Case B: subset as a string."""
    known = await pods.tell((0, 0.1), (0, 0.1), (0, 0.1))
    routed = await picker.route(completion(), subset=f"{known[1]},{known[2]}")
    assert set(routed.destinations) <= set(known[1:])


async def test_every_endpoint_named_is_in_the_subset(picker: Picker, pods: Pods) -> None:
    """Case C: fallbacks obey the subset."""
    known = await pods.tell((0, 0.1), (5, 0.1), (9, 0.1))
    for allowed in (known[:2], known[1:], [known[0], known[2]]):
        routed = await picker.route(completion(), subset=allowed)
        assert set(routed.destinations) <= set(allowed)
        assert len(routed.destinations) == len(set(routed.destinations))


async def test_an_ipv6_endpoint_is_known_in_brackets(picker: Picker, pods: Pods) -> None:
    """Case D: IPv6 endpoints."""
    ipv6 = [address for address in pods.addresses if address.startswith("[")]
    if not ipv6:
        pytest.skip("no pod has an IPv6 address")
    await pods.tell(*[(0, 0.1)] * len(pods.all))
    host, _, port = ipv6[0].rpartition(":")
    assert (await picker.route(completion(), subset=[ipv6[0]])).destinations == [ipv6[0]]
    assert (await picker.reject(completion(), subset=[f"{host}:{int(port) ^ 1}"])).status == 503


@pytest.mark.feature("passthrough")
async def test_a_request_without_a_body_obeys_the_subset(picker: Picker, pods: Pods) -> None:
    """Case E: header only, with a subset."""
    known = await pods.tell((0, 0.1), (0, 0.1), (0, 0.1))
    get = {**HEADERS, ":method": "GET", ":path": "/unknown/path"}
    for _ in range(6):
        assert (await picker.route(sent=get, subset=[known[2]])).destinations == [known[2]]
