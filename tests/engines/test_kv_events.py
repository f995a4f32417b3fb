"""An engine's word on its KV cache: read from messages, and brought into the index."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.test_dialects import CAPTURES
from tests.fleet.declare import A, fleet_of, pool
from tidegate.engines import kv_events
from tidegate.engines.kv_events import Batch, CacheFollower, Cleared, MalformedEventsError, Removed, Stored, decode
from tidegate.fleet.events import BlocksCleared, BlocksRemoved, BlocksStored
from tidegate.tokens.prefix import of_token_ids

IDS = list(range(100, 112))
CHAIN = of_token_ids(IDS, 4, ("m",)).hashes


def frame(*events: Any, rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), *([] if rank is None else [rank])])


def numbered(number: int) -> bytes:
    return number.to_bytes(8, "big")


def stored(hashes: list[Any], parent: Any, ids: list[int], **more: Any) -> dict[str, Any]:
    known = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": ids}
    return {**known, "block_size": 4, "lora_id": None, "medium": "GPU", "lora_name": None, **more}


def test_a_batch_is_read() -> None:
    payload = frame(
        stored([7, 8], None, IDS[:8], extra_keys=[["salt"], None], group_idx=0),
        {"type": "BlockRemoved", "block_hashes": [9], "medium": "GPU"},
        {"type": "AllBlocksCleared"},
        rank=3,
    )
    assert decode(numbered(5), payload) == Batch(
        5, (Stored((7, 8), None, tuple(IDS[:8]), 4, "", (("salt",), ())), Removed((9,)), Cleared()), 3
    )


def test_older_releases_write_arrays() -> None:
    payload = frame(
        ["BlockStored", [7], None, IDS[:4], 4, None], ["BlockRemoved", [7]], ["AllBlocksCleared"], rank=None
    )
    assert decode(numbered(0), payload).events == (
        Stored((7,), None, tuple(IDS[:4]), 4, "", ((),)),
        Removed((7,)),
        Cleared(),
    )


def test_hashes_may_be_bytes() -> None:
    assert decode(numbered(0), frame({"type": "BlockRemoved", "block_hashes": [b"x" * 32]})).events == (
        Removed((b"x" * 32,)),
    )


def test_blocks_outside_the_gpu_and_unknown_events_are_passed_over() -> None:
    payload = frame(
        stored([7], None, IDS[:4], medium="CPU"),
        {"type": "BlockRemoved", "block_hashes": [7], "medium": "STORAGE"},
        {"type": "SomethingNew", "x": 1},
    )
    assert decode(numbered(0), payload).events == ()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"a": 1}),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, 5]),
        frame(5),
        frame([]),
        frame(stored(["x"], None, IDS[:4])),
        frame(stored([1], "x", IDS[:4])),
        frame(stored([1], None, IDS[:3])),
        frame(stored([1], None, ["a"] * 4)),  # type: ignore[list-item]
        frame(stored([1], None, [], block_size=0)),
        frame(stored([1], None, IDS[:4], extra_keys=5)),
        frame(stored([1], None, IDS[:4], extra_keys=[5])),
        frame(rank=-1),
        frame(rank=10**6),
        frame({"type": "BlockRemoved"}),
    ],
)
def test_what_is_no_batch_is_an_error(payload: bytes) -> None:
    with pytest.raises(MalformedEventsError):
        decode(numbered(0), payload)


def test_a_sequence_number_has_eight_bytes_and_a_payload_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MalformedEventsError):
        decode(b"\x00", frame())
    monkeypatch.setattr(kv_events, "MAX_MESSAGE_BYTES", 5)
    with pytest.raises(MalformedEventsError):
        decode(numbered(0), frame(*[{"type": "AllBlocksCleared"}] * 9))


@given(st.binary(max_size=60), st.binary(max_size=9))
def test_no_bytes_do_anything_worse(payload: bytes, number: bytes) -> None:
    try:
        batch = decode(number, payload)
    except MalformedEventsError:
        return
    CacheFollower(A, "m").take(batch)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Other"])},
            optional=dict.fromkeys(("block_hashes", "parent_block_hash", "token_ids", "extra_keys"), VALUES)
            | {"block_size": VALUES, "medium": VALUES, "lora_name": VALUES},
        ),
        max_size=4,
    )
)
def test_no_event_does_anything_worse(events: list[dict[str, Any]]) -> None:
    try:
        batch = decode(numbered(1), frame(*events))
    except MalformedEventsError:
        return
    CacheFollower(A, "m").take(batch)


def test_stored_blocks_stand_where_a_prompts_hashes_do() -> None:
    follower = CacheFollower(A, "m")
    first = decode(numbered(0), frame(stored([71, 72], None, IDS[:8])))
    second = decode(numbered(1), frame(stored([73], 72, IDS[8:])))
    assert follower.take(first) == [BlocksStored(A, CHAIN[:2], 4)]
    assert follower.take(second) == [BlocksStored(A, CHAIN[2:], 4)]


def test_a_removed_block_is_told_by_the_engines_hash() -> None:
    follower = CacheFollower(A, "m")
    follower.take(decode(numbered(0), frame(stored([71, 72], None, IDS[:8]))))
    removed = {"type": "BlockRemoved", "block_hashes": [72, 99]}
    assert follower.take(decode(numbered(1), frame(removed))) == [BlocksRemoved(A, CHAIN[1:2])]
    assert follower.take(decode(numbered(2), frame(removed))) == []


def test_an_adapter_and_a_salt_are_keys_of_their_own() -> None:
    follower = CacheFollower(A, "m")
    adapted = stored([71], None, IDS[:4], lora_name="sql", extra_keys=[["sql"]])
    salted = stored([72], None, IDS[:4], extra_keys=[["tenant"]])
    assert follower.take(decode(numbered(0), frame(adapted, salted))) == [
        BlocksStored(A, of_token_ids(IDS[:4], 4, ("sql",)).hashes, 4),
        BlocksStored(A, of_token_ids(IDS[:4], 4, ("m", "tenant")).hashes, 4),
    ]


def test_a_block_whose_place_is_not_known_is_passed_over() -> None:
    follower = CacheFollower(A, "m")
    image = stored([74, 75], None, IDS[:8], extra_keys=[None, ["image-hash"]])
    assert follower.take(decode(numbered(7), frame(stored([73], 72, IDS[:4]), image))) == [
        BlocksStored(A, CHAIN[:1], 4)
    ]


@pytest.mark.parametrize("number", [0, 5, 7])
def test_a_gap_or_a_restart_makes_all_that_is_known_doubtful(number: int) -> None:
    follower = CacheFollower(A, "m")
    follower.take(decode(numbered(4), frame(stored([71], None, IDS[:4]))))
    follower.take(decode(numbered(5), frame()))
    again = decode(numbered(number), frame(stored([72], 71, IDS[4:8])))
    assert follower.take(again) == [BlocksCleared(A)]
    assert follower.take(decode(numbered(number + 1), frame(stored([71], None, IDS[:4])))) == [
        BlocksStored(A, CHAIN[:1], 4)
    ]


def test_ranks_count_for_themselves() -> None:
    follower = CacheFollower(A, "m")
    for number in range(3):
        for rank in (0, 1):
            assert follower.take(decode(numbered(number), frame(rank=rank))) == []


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_events, "MAX_BLOCKS", 2)
    follower = CacheFollower(A, "m")
    follower.take(decode(numbered(0), frame(stored([71, 72, 73], None, IDS))))
    assert list(follower._chained) == [72, 73]


def test_the_fleet_then_knows_what_is_cached() -> None:
    fleet, follower = fleet_of(pool(A)), CacheFollower(A, "m")
    for event in follower.take(decode(numbered(0), frame(stored([71, 72, 73], None, IDS)))):
        fleet.apply(event, 0.0)
    assert fleet.cached("default", CHAIN).blocks(A) == 3
    for event in follower.take(decode(numbered(1), frame({"type": "BlockRemoved", "block_hashes": [72]}))):
        fleet.apply(event, 0.0)
    assert fleet.cached("default", CHAIN).blocks(A) == 1
    for event in follower.take(decode(numbered(2), frame({"type": "AllBlocksCleared"}))):
        fleet.apply(event, 0.0)
    assert fleet.cached("default", CHAIN).blocks(A) == 0


@pytest.mark.skipif(CAPTURES is None, reason="the captured messages are not here")
def test_captured_messages_are_read() -> None:
    assert CAPTURES is not None
    at = Path(CAPTURES) / "vllm"
    raw = [json.loads(line) for line in (at / "kv-events.raw.hex").read_text().splitlines()]
    told = [json.loads(line) for line in (at / "kv-events.jsonl").read_text().splitlines()]
    follower = CacheFollower(A, "m")
    for frames, expected in zip(raw, told, strict=False):
        _, number, payload = map(bytes.fromhex, frames)
        batch = decode(number, payload)
        assert batch.number == expected["seq"]
        assert len(batch.events) == len(expected["payload"][1])
        assert BlocksCleared(A) not in follower.take(batch)
