"""What anybody else has written into the keys in Redis costs itself alone: it is as if it were not there."""

import base64
import time
from collections.abc import Iterator

import pytest

from tests.sharing.redis_server import RedisServer, redis_server
from tests.sharing.test_ledger import Ledger
from tidegate.scheduling.budget import Cost, Limit, Unit, Window
from tidegate.sharing import inflight, names, operations

META, USED, HELD, LEASES, REPLICAS, INFLIGHT = names.keys("ledger")
LIMIT = Limit(Unit.TOKENS, Window.DAY, 100)
NAMED = [(LIMIT.name, LIMIT)]
ODD = (
    "",
    "garbage",
    "nan",
    "nan nan nan nan nan",
    "inf 1 1",
    "1e999 1 1",
    "-inf -inf -inf -inf -inf",
    "1 2",
    "\x00 \xff z",
)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def ledger(redis: RedisServer) -> Ledger:
    redis.do("FLUSHALL")
    return Ledger(redis).join()


def works(ledger: Ledger) -> None:
    """Hold that limits are counted as ever."""
    assert ledger.one(operations.reserve("works", Cost(60, 0), NAMED)).startswith("1 ")
    assert ledger.one(operations.reserve("too much", Cost(60, 0), NAMED)).startswith("0 ")
    assert ledger.one(operations.settle("works", 10, 0)) == "1"
    assert operations.looked(ledger.one(operations.look(NAMED))) == [10.0]


@pytest.mark.parametrize("written", ODD)
def test_a_replica_that_nobody_can_be_is_none_and_is_forgotten(
    written: str, ledger: Ledger, redis: RedisServer
) -> None:
    redis.do("HSET", REPLICAS, "evil", written)
    reply = ledger.call()
    assert (reply.state, reply.replicas, reply.here) == ("ok", 1, 1)
    works(ledger)
    assert redis.do("HKEYS", REPLICAS) == [b"one"]


@pytest.mark.parametrize("written", ODD)
def test_a_record_of_ones_own_that_cannot_be_read_is_written_anew(
    written: str, ledger: Ledger, redis: RedisServer
) -> None:
    redis.do("HSET", REPLICAS, "one", written)
    assert ledger.call(operations.tell(3, [], [])).results == ("1",)
    assert ledger.call(operations.tell(3, [], [])).results == ("0",)
    works(ledger)


@pytest.mark.parametrize("written", ODD)
def test_a_word_of_no_time_ends_at_once(written: str, ledger: Ledger, redis: RedisServer) -> None:
    told, word = base64.b64encode(bytes(24)).decode(), written.partition(" ")[0]
    redis.do("HSET", INFLIGHT, "liar", f"{word} {told}", "other", f"{time.time():.6f} {told}")
    asked = inflight.tell([], lambda _: bytes(8))
    assert ledger.one(asked) == told
    assert redis.do("HKEYS", INFLIGHT) == [b"other"]


@pytest.mark.parametrize("written", ODD)
def test_an_account_that_cannot_be_read_is_a_new_one(written: str, ledger: Ledger, redis: RedisServer) -> None:
    redis.do("HSET", USED, LIMIT.name, written, "nobody's", written)
    works(ledger)
    assert redis.do("HKEYS", USED) == [LIMIT.name.encode()], "what nobody uses is swept"


@pytest.mark.parametrize("written", ODD)
def test_a_request_that_cannot_be_read_holds_nothing(written: str, ledger: Ledger, redis: RedisServer) -> None:
    redis.do("HSET", HELD, "odd", written, "late", written)
    redis.do("ZADD", LEASES, 1, "late", 2, "never heard of")
    assert ledger.one(operations.release("odd")) == "0"
    works(ledger)
    assert redis.do("HLEN", HELD) == redis.do("ZCARD", LEASES) == 0


@pytest.mark.parametrize("written", ["nan", "inf", "-inf", "1e999", "x", "9999999999999"])
@pytest.mark.parametrize("field", ["began", "last", "hold", "since"])
def test_what_is_known_of_the_whole_holds_nothing_up(
    field: str, written: str, ledger: Ledger, redis: RedisServer
) -> None:
    redis.do("HSET", META, field, written)
    reply = ledger.call()
    assert reply.state == "ok"
    assert (reply.replicas, reply.here) == (1, 1)
    assert 0 <= reply.age < float("inf")
    works(ledger)
