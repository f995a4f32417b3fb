"""Routing: cases 1 to 13 of the reference suite."""

import json

import pytest

from tests.conformance.endpoint_picker import messages
from tests.conformance.endpoint_picker.messages import DROPPED, HEADERS, completion
from tests.conformance.endpoint_picker.picker import Picker, decided, rejected
from tests.conformance.endpoint_picker.pods import Pods

LORA = "sql-lora-1fdg2"
LORA_3 = "sql-lora-1fdg3"


async def test_the_endpoint_with_the_lower_queue_and_kv_cache_is_picked(picker: Picker, pods: Pods) -> None:
    """Case 1: select lower queue and kv cache."""
    known = await pods.tell((3, 0.2), (0, 0.1), (10, 0.2))
    routed = await picker.route(completion("my-model", "test1"))
    assert routed.pick == known[1]
    assert json.loads(routed.body) == json.loads(completion("my-model", "test1"))
    assert (routed.headers["hi"], routed.headers["x-request-id"]) == ("mom", "test-request-id")


async def test_the_endpoint_with_the_adapter_and_a_low_queue_is_picked(picker: Picker, pods: Pods) -> None:
    """Case 2: active LoRA, low queue."""
    known = await pods.tell((0, 0.2, ("foo", "bar")), (0, 0.1, ("foo", LORA)), (10, 0.2, ("foo", "bar")))
    routed = await picker.route(completion(LORA, "test2"))
    assert routed.pick in (known[1:2] if "lora" in picker.features else known[:2])


@pytest.mark.feature("lora")
async def test_the_adapter_outweighs_a_fuller_kv_cache(picker: Picker, pods: Pods) -> None:
    """Case 3: LoRA despite higher kv."""
    known = await pods.tell((10, 0.2, ("foo", "bar")), (10, 0.4, ("foo", LORA)), (10, 0.3, ("foo",)))
    assert (await picker.route(completion(LORA, "test3"))).pick == known[1]


@pytest.mark.feature("lora")
async def test_the_adapter_outweighs_a_queue(picker: Picker, pods: Pods) -> None:
    """Case 4: do not shed by default."""
    known = await pods.tell((6, 0.2, ("foo", LORA)), (0, 0.85, ("foo",)), (10, 0.9, ("foo",)))
    assert (await picker.route(completion(LORA, "test4"))).pick == known[0]


async def test_busy_endpoints_are_better_than_a_refusal(picker: Picker, pods: Pods) -> None:
    """Case 4, without adapters: do not shed by default."""
    known = await pods.tell((60, 0.95), (50, 0.95), (100, 0.95))
    assert (await picker.route(completion("my-model", "test4"))).pick in known


async def test_a_body_that_comes_in_two_messages_is_read_as_one(picker: Picker, pods: Pods) -> None:
    """Case 5: split body across chunks."""
    known = await pods.tell((4, 0.2, ("foo", LORA_3)), (4, 0.85, ("foo", LORA_3)))
    sent = completion("sql-lora-sheddable", "test6")
    cut = sent.index(b'"sql-lo') + len(b'"sql-lo')
    routed = await picker.route(sent[:cut], sent[cut:])
    assert routed.pick in known
    assert json.loads(routed.body) == json.loads(sent)


async def test_a_model_that_nobody_declared_goes_to_the_one_endpoint(picker: Picker, pods: Pods) -> None:
    """Case 6: passthrough, a model that is in no objective."""
    (only,) = await pods.tell((4, 0.2))
    sent = completion("direct-model", "test6")
    routed = await picker.route(sent[:20], sent[20:], subset=[only])
    assert routed.destinations == [only]
    assert json.loads(routed.body)["model"] == "direct-model"


@pytest.mark.feature("model-rewrite")
async def test_a_models_name_is_rewritten(picker: Picker, pods: Pods) -> None:
    """Case 7: rewrite request model."""
    (only,) = await pods.tell((0, 0.1, ("foo", "rewritten-model")))
    routed = await picker.route(completion("model-to-be-rewritten", "test-rewrite"), subset=[only])
    assert json.loads(routed.body)["model"] == "rewritten-model"


@pytest.mark.feature("passthrough")
async def test_a_body_that_is_no_json_passes_byte_by_byte(picker: Picker, pods: Pods) -> None:
    """Case 8: passthrough parser."""
    known = await pods.tell((3, 0.2), (0, 0.1), (10, 0.2))
    routed = await picker.route(b"passthrough-parser", sent={**HEADERS, ":path": "/unknown/path"})
    assert (routed.pick, routed.body) == (known[1], b"passthrough-parser")


async def test_the_best_of_a_subset_is_picked(picker: Picker, pods: Pods) -> None:
    """Case 9: subset, best of."""
    known = await pods.tell((0, 0.2), (0, 0.1, ("foo", LORA)), (10, 0.2))
    assert (await picker.route(completion(LORA), subset=known)).pick in known[:2]
    routed = await picker.route(completion(LORA), subset=known[1:])
    assert routed.pick == known[1]
    assert set(routed.destinations) <= set(known[1:])


async def test_a_subset_of_strangers_is_refused(picker: Picker, pods: Pods) -> None:
    """Case 10: subset, none."""
    await pods.tell((0, 0.1), (0, 0.1))
    rejected = await picker.reject(completion(), subset=["192.168.1.99:8000"])
    assert (rejected.status, rejected.headers[DROPPED]) == (503, "rejected-no-endpoints")


@pytest.mark.feature("passthrough")
async def test_a_request_without_a_body_is_refused_where_nobody_may_serve_it(picker: Picker) -> None:
    """Case 11: header only, no pods; 503, as the protocol has it."""
    get = {**HEADERS, ":method": "GET", ":path": "/unknown/path"}
    assert (await picker.reject(sent=get, subset=[])).status == 503


async def test_invalid_json_is_refused(picker: Picker, pods: Pods) -> None:
    """Case 12: invalid JSON."""
    await pods.tell((0, 0.1))
    assert (await picker.reject(b"no healthy upstream")).status == 400


async def test_a_missing_model_is_the_clients_error_or_none(picker: Picker, pods: Pods) -> None:
    """Case 13: missing model. A picker that serves one pool may do without it."""
    known = await pods.tell((0, 0.1), (0, 0.1))
    async with picker.stream() as stream:
        await stream.send(messages.headers(), messages.body(b'{"prompt":"hello world"}'))
        reply = await stream.reply()
        if reply.WhichOneof("response") == "immediate_response":
            assert rejected(reply).status == 400
        else:
            assert decided(reply, HEADERS).pick in known
