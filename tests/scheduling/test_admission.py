import itertools
import math
import random

import pytest

from tests.scheduling.ask import A, B, ask
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import LoadReported, PoolsDeclared, RequestEnded, ScrapeFailed
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.scheduling.admission import Admission
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal, RefusalReason
from tidegate.scheduling.line import Asker, Over, Place, QueueSettings, Turnaway, Why
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.queue import Bounds
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.saturation import Objective, saturation

_ids = itertools.count()


class Pool:
    """A pool of engines with batches of a size, and its queue."""

    def __init__(
        self,
        addresses: tuple[str, ...] = (A,),
        most: int | None = 2,
        settings: QueueSettings | None = None,
        policy: str = "least_request",
    ) -> None:
        self.fleet = Fleet(1e9, stale_after=5.0)
        self.dispatcher = Dispatcher(self.fleet, random.Random(1))
        self.admission = Admission(self.fleet, self.dispatcher)
        self.policy = Policy(policy)
        self.configure(addresses, most, settings or QueueSettings())
        self.over: dict[str, Over] = {}

    def configure(
        self, addresses: tuple[str, ...], most: int | None, settings: QueueSettings | None, now: float = 0.0
    ) -> None:
        members = tuple(EndpointSpec(address, max_running=most) for address in addresses)
        declared = PoolsDeclared((PoolSpec("default", "vllm", ("*",), members),))
        self.fleet.apply(declared, now)
        rooms = self.admission.configure({} if settings is None else {"default": settings}, now)
        self.dispatcher.configure(declared, {"default": self.policy}, rooms)

    def ask(
        self,
        name: str = "",
        now: float = 0.0,
        *,
        prompt: int = 100,
        tenant: str = "",
        priority: int = 0,
        size: int = 1,
        until: float = math.inf,
    ) -> Decision | Refusal | Turnaway | Place:
        asked = ask(name or f"r{next(_ids)}", prompt=prompt, limit=10)
        return self.admission.ask(asked, now, Asker(tenant, priority, size, until))

    def fill(self, count: int, now: float = 0.0) -> list[str]:
        names = [f"f{next(_ids)}" for _ in range(count)]
        assert all(isinstance(self.ask(name, now), Decision) for name in names)
        return names

    def end(self, name: str, now: float) -> None:
        self.fleet.apply(RequestEnded(name), now)

    def poll(self, now: float) -> list[str]:
        over = self.admission.poll(now)
        self.over |= {one.place.request.id: one for one in over}
        return [one.place.request.id for one in over]

    def report(self, now: float, running: float, waiting: float, capacity: float | None = None) -> None:
        report = EngineReport(running, waiting, None if capacity is None else 0.0, capacity)
        for address in (spec.address for spec in self.fleet.members("default")):
            self.fleet.apply(LoadReported(address, report), now)


def test_a_request_goes_at_once_where_there_is_room_and_waits_where_there_is_none() -> None:
    pool = Pool()
    first, _ = pool.fill(2)
    place = pool.ask("waits")
    assert isinstance(place, Place)
    assert (place.position, place.pool, len(pool.admission)) == (1, "default", 1)
    assert pool.poll(1.0) == []
    pool.end(first, 2.0)
    assert pool.poll(2.0) == ["waits"]
    assert isinstance(pool.over["waits"].outcome, Decision)
    assert len(pool.admission) == 0
    assert isinstance(pool.ask(), Place), "its room is taken"


def test_who_comes_goes_behind_those_who_wait_even_where_there_is_room() -> None:
    pool = Pool()
    first, second = pool.fill(2)
    pool.ask("earlier")
    pool.end(first, 1.0)
    pool.ask("later", 1.0)
    assert pool.poll(1.0) == ["earlier"]
    pool.end(second, 2.0)
    assert pool.poll(2.0) == ["later"]


def test_the_more_important_goes_first_and_batch_work_last_however_long_it_waits() -> None:
    pool = Pool(most=1, settings=QueueSettings(ageing_seconds=1.0))
    (running,) = pool.fill(1)
    for name, priority in (("batch", -1), ("normal", 0), ("high", 5)):
        assert isinstance(pool.ask(name, priority=priority), Place)
    order = []
    for now in (0.5, 0.6, 0.7):
        pool.end(running, now)
        (running,) = pool.poll(now)
        order.append(running)
    assert order == ["high", "normal", "batch"]


def test_batch_work_leaves_a_share_of_every_endpoint_to_the_others() -> None:
    pool = Pool((A, B), most=10, settings=QueueSettings(batch_share=0.8))
    outcomes = [pool.ask(priority=-1) for _ in range(20)]
    assert sum(isinstance(one, Decision) for one in outcomes) == 16
    assert sum(isinstance(pool.ask(), Place) for _ in range(4)) == 0, "interactive requests go before those that wait"
    assert isinstance(pool.ask(), Place)


def test_batch_work_waits_while_first_tokens_are_about_to_come_too_late() -> None:
    fleet = Pool((A, B)).fleet
    alone = saturation(fleet.view("default", 0.0), fleet.mix("default"), Objective(1.0)).ttft
    assert alone is not None
    pool = Pool((A, B), most=100, settings=QueueSettings(ttft_seconds=alone / 0.7))
    assert isinstance(pool.ask("idle", priority=-1), Decision)
    assert isinstance(pool.ask("one", prompt=1_000), Decision)
    assert isinstance(pool.ask("other", 0.2, prompt=1_000), Decision)
    assert isinstance(pool.ask("both busy", 0.21, prompt=1_000), Decision)
    assert isinstance(pool.ask("batch", 0.22, priority=-1), Place)
    assert isinstance(pool.ask("urgent", 0.23), Decision), "others are not kept from going"
    assert pool.poll(0.24) == []
    assert pool.poll(1.0) == ["batch"]


def test_a_request_whose_time_is_up_is_told_so_and_no_engine_sees_it() -> None:
    pool = Pool(settings=QueueSettings(max_wait_seconds=10.0, batch_max_wait_seconds=100.0))
    first, _ = pool.fill(2)
    pool.ask("patient")
    pool.ask("hurried", until=3.0)
    pool.ask("batch", priority=-1)
    assert pool.admission.next_deadline() == 3.0
    pool.end(first, 3.0)
    assert pool.poll(3.0) == ["hurried", "patient"], "the late are gone before anybody is sent"
    outcome = pool.over["hurried"].outcome
    assert isinstance(outcome, Turnaway)
    assert outcome.why is Why.EXPIRED
    assert pool.poll(100.0) == ["batch"]
    assert pool.admission.next_deadline() == math.inf


def test_a_client_that_left_is_never_decided_on() -> None:
    pool = Pool()
    first, _ = pool.fill(2)
    pool.ask("gone")
    pool.ask("stays")
    assert pool.admission.leave("gone", 1.0) is not None
    assert pool.admission.leave("gone", 1.0) is None
    pool.end(first, 1.0)
    assert pool.poll(1.0) == ["stays"]
    assert "gone" not in pool.fleet.ledger


def test_a_full_queue_sheds_the_least_important_and_refuses_its_equals() -> None:
    pool = Pool(settings=QueueSettings(bounds=Bounds(requests=2)))
    pool.fill(2)
    pool.ask("low")
    pool.ask("lower", priority=-1)
    refused = pool.ask(priority=-1)
    assert isinstance(refused, Turnaway)
    assert (refused.why, refused.position) == (Why.FULL, 3)
    assert isinstance(pool.ask("high", priority=3), Place)
    assert pool.poll(0.0) == ["lower"]
    shed = pool.over["lower"].outcome
    assert isinstance(shed, Turnaway)
    assert shed.why is Why.SHED
    assert shed.retry_seconds >= 1


@pytest.mark.parametrize(
    "bounds", [Bounds(tenant_requests=1), Bounds(tenant_tokens=150), Bounds(tenant_requests=1, requests=1)]
)
def test_one_tenant_fills_its_own_part_of_the_queue(bounds: Bounds) -> None:
    pool = Pool(settings=QueueSettings(bounds=bounds))
    pool.fill(2)
    pool.ask(tenant="greedy")
    refused = pool.ask(tenant="greedy")
    assert isinstance(refused, Turnaway)
    assert refused.why is Why.TENANT_FULL


def steady(pool: Pool, seconds: float, each: float = 0.1) -> float:
    """Have a request end every ``each`` seconds, and another one wait for it."""
    running = pool.fill(2)
    now = 0.0
    for _ in range(round(seconds / each)):
        pool.ask(now=now)
        now += each
        pool.end(running.pop(0), now)
        running += pool.poll(now)
    return now


def test_a_wait_is_foretold_by_the_rate_at_which_the_queue_was_emptied() -> None:
    pool = Pool()
    now = steady(pool, 20.0)
    assert pool.admission.rate("default") == pytest.approx(1100, rel=0.1)
    places = [pool.ask(now=now) for _ in range(20)]
    assert all(isinstance(one, Place) for one in places)
    last = places[-1]
    assert isinstance(last, Place)
    assert last.estimate == pytest.approx(2.0, rel=0.15)
    assert last.position == 20


def test_who_would_wait_for_too_long_is_refused_now_and_told_when_to_come_again() -> None:
    pool = Pool(settings=QueueSettings(max_wait_seconds=5.0))
    now = steady(pool, 20.0)
    outcomes = [pool.ask(now=now) for _ in range(80)]
    refused = [one for one in outcomes if isinstance(one, Turnaway)]
    assert 25 <= len(refused) <= 35
    assert {one.why for one in refused} == {Why.TOO_LONG}
    assert all(one.estimate is not None and one.estimate > 5.0 for one in refused)
    hurried = pool.ask(now=now, until=now + 2.0)
    assert isinstance(hurried, Turnaway)
    assert 2 <= hurried.retry_seconds <= 5, "then the queue is down to two seconds"


def test_what_the_rate_should_be_is_no_reason_to_turn_anybody_away() -> None:
    pool = Pool(settings=QueueSettings(max_wait_seconds=0.5))
    pool.fill(2)
    places = [pool.ask() for _ in range(50)]
    assert all(isinstance(one, Place) for one in places)
    last = places[-1]
    assert isinstance(last, Place)
    assert last.estimate is not None, "but it is told"


def test_nothing_waits_for_endpoints_of_which_nothing_is_known() -> None:
    pool = Pool(most=None)
    assert all(isinstance(pool.ask(), Decision) for _ in range(1000))
    for _ in range(3):
        pool.fleet.apply(ScrapeFailed(A, unreachable=True, reason="refused"), 1.0)
    assert isinstance(pool.ask(now=1.0), Decision), "as without a queue: a doubtful endpoint beats a sure refusal"


def test_requests_wait_for_endpoints_that_are_all_down_and_are_let_in_slowly_when_one_is_back() -> None:
    pool = Pool((A, B), most=100, settings=QueueSettings(max_wait_seconds=20.0))
    pool.poll(0.0)
    for address in (A, B):
        for _ in range(3):
            pool.fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), 1.0)
    pool.admission.reconsider()
    pool.poll(1.0)
    for _ in range(100):
        assert isinstance(pool.ask(now=2.0, prompt=10), Place)
    pool.fleet.apply(LoadReported(A, EngineReport()), 4.0)
    pool.admission.reconsider()
    assert len(pool.poll(4.0)) == 4
    assert len(pool.poll(5.0)) == 4
    assert len(pool.poll(6.0)) == 8
    assert len(pool.poll(9.0)) == 84
    assert {one.outcome.addresses[0] for one in pool.over.values() if isinstance(one.outcome, Decision)} == {A}


def test_a_pool_without_endpoints_refuses_and_one_that_lost_them_lets_wait() -> None:
    assert Pool(()).ask() == Refusal(RefusalReason.NO_ENDPOINTS, "default")
    pool = Pool(most=1)
    pool.fill(1)
    pool.ask("waits")
    pool.configure((), 1, QueueSettings(), 1.0)
    assert pool.poll(1.0) == []
    pool.configure((B,), 1, QueueSettings(), 2.0)
    assert pool.poll(2.0) == ["waits"]


def test_what_waits_in_a_queue_that_is_taken_away_goes_as_if_there_had_been_none() -> None:
    pool = Pool(most=1)
    pool.fill(1)
    pool.ask("waits")
    pool.configure((A,), 1, None)
    assert pool.poll(1.0) == ["waits"]
    assert isinstance(pool.over["waits"].outcome, Decision)


def test_the_prompt_that_is_larger_than_any_cache_is_for_an_empty_engine_to_refuse() -> None:
    pool = Pool(most=None)
    pool.report(0.0, running=0.0, waiting=0.0, capacity=1000.0)
    pool.poll(0.0)
    assert isinstance(pool.ask("huge", prompt=100_000), Decision)
    pool.ask("next")
    assert pool.poll(0.0) == []
    pool.end("huge", 1.0)
    assert pool.poll(1.0) == ["next"]


def test_an_engine_that_falls_silent_is_as_large_as_it_was() -> None:
    pool = Pool(most=None)
    pool.report(0.0, running=0.0, waiting=0.0, capacity=1000.0)
    pool.poll(0.0)
    outcomes = [pool.ask(now=60.0) for _ in range(20)]
    assert sum(isinstance(one, Decision) for one in outcomes) == 9


def test_a_batch_is_learned_from_an_engine_that_keeps_requests_waiting() -> None:
    pool = Pool(most=None)
    names = pool.fill(30)
    for now in (1.0, 2.0):
        pool.report(now, running=10.0, waiting=20.0)
        pool.poll(now)
    assert isinstance(pool.ask("waits", 2.0), Place)
    for name in names[:16]:
        pool.end(name, 2.5)
    assert pool.poll(2.5) == []
    pool.end(names[16], 2.6)
    assert pool.poll(2.6) == ["waits"], "ten run, and four wait in the engine, so that it has something to go on with"


def test_a_burst_into_a_growing_batch_is_no_full_batch() -> None:
    pool = Pool(most=None)
    pool.fill(60)
    for now, running in ((1.0, 10.0), (2.0, 30.0), (3.0, 50.0)):
        pool.report(now, running=running, waiting=60.0 - running)
        pool.poll(now)
    assert isinstance(pool.ask(now=3.0), Decision)


def test_an_engine_that_has_prompts_before_it_gets_no_more_of_them_until_it_has_done_those() -> None:
    """Otherwise an important request would find all the others before it, in an engine that takes them in turn."""
    pool = Pool((A, B), most=1000)
    sent = [pool.ask(prompt=1_000) for _ in range(20)]
    assert 4 <= sum(isinstance(one, Decision) for one in sent) <= 8
    urgent = pool.ask("urgent", prompt=1_000, priority=5)
    assert isinstance(urgent, Place)
    assert pool.poll(0.0) == []
    assert pool.poll(0.25)[0] == "urgent"
    assert isinstance(Pool((A,), most=1000).ask(prompt=100_000), Decision), "one that has nothing takes any"


def test_a_hundred_equal_requests_on_eight_endpoints_differ_by_one() -> None:
    addresses = tuple(f"10.0.0.{number}:8000" for number in range(8))
    pool = Pool(addresses, most=8)
    outcomes = [pool.ask() for _ in range(100)]
    assert sum(isinstance(one, Decision) for one in outcomes) == 64
    inflight = [pool.fleet.ledger.inflight(address).requests for address in addresses]
    assert inflight == [8] * 8


def test_all_are_turned_away_when_the_process_ends() -> None:
    pool = Pool()
    pool.fill(2)
    pool.ask("waits")
    pool.admission.turn_all_away(1.0)
    assert pool.poll(1.0) == ["waits"]
    outcome = pool.over["waits"].outcome
    assert isinstance(outcome, Turnaway)
    assert outcome.why is Why.STOPPING


def test_what_waits_is_summed_by_class() -> None:
    pool = Pool()
    pool.fill(2)
    pool.ask(now=1.0, size=10)
    pool.ask(now=2.0, size=5)
    pool.ask(now=3.0, priority=-1, size=7)
    interactive, batch = pool.admission.standings(4.0)
    assert interactive[2:7] == (2, 220, 15, 3.0, 0)
    assert batch[1:7] == (True, 1, 110, 7, 1.0, 0)


def test_a_request_that_waits_already_is_a_fault() -> None:
    pool = Pool()
    pool.fill(2)
    pool.ask("twice")
    with pytest.raises(ValueError, match="twice"):
        pool.ask("twice")


def test_an_unknown_model_is_refused_whatever_its_priority() -> None:
    pool = Pool()
    asked = InferenceRequest(*ask("q", model="m"))._replace(pool="nowhere")
    for priority in (0, -1):
        assert pool.admission.ask(asked, 0.0, Asker(priority=priority)) == Refusal(RefusalReason.NO_ENDPOINTS)
