"""What replicas do by themselves: with a store that counts, without it, and after it lost everything."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidegate.scheduling.budget import Cost, Limit, Unit, Window
from tidegate.scheduling.sharing.share import Share

NOON = 1_700_000_000.0
SCOPE = "tenant:acme"
DAY = Limit(Unit.TOKENS, Window.DAY, 600)
FLIGHT = Limit(Unit.TOKENS, Window.IN_FLIGHT, 600)
MINUTE = Limit(Unit.TOKENS, Window.MINUTE, 600)


def share(*limits: Limit, parts: int = 3) -> Share:
    made = Share(parts)
    made.configure({SCOPE: limits}, NOON)
    return made


def taken(made: Share, number: str, tokens: int, now: float = NOON) -> bool:
    return made.reserve(number, made.accounts([SCOPE]), Cost(tokens, 0), now) is None


def owed(made: Share, now: float = NOON) -> list[float]:
    return [amount for _, amount in made.owed(10, now)]


def test_a_replica_alone_keeps_its_share() -> None:
    made = share(DAY)
    assert taken(made, "a", 150)
    assert not taken(made, "b", 51)
    assert taken(made, "c", 50)
    assert owed(made) == [200]
    assert owed(made) == [], "it is told once"


def test_what_is_left_is_shared_out_whoever_used_the_rest() -> None:
    made = share(DAY, MINUTE)
    made.seen(made.accounts([SCOPE]), [540, 0], NOON)
    assert not taken(made, "a", 21)
    assert taken(made, "b", 20)


def test_of_what_is_in_flight_everybody_counts_their_own() -> None:
    made = share(FLIGHT)
    made.seen(made.accounts([SCOPE]), [600], NOON)
    assert taken(made, "a", 200)
    assert not taken(made, "b", 1)
    made.settle("a", None, NOON)
    assert taken(made, "b", 1)
    assert owed(made) == [], "requests in flight are told one by one"
    assert [number for number, _ in made.untold(10)] == ["b"]
    assert made.untold(10) == []


def test_what_a_minute_gave_back_is_not_owed() -> None:
    made = share(MINUTE)
    assert taken(made, "a", 200)
    # A share is a third of what a minute gives: 200 tokens.
    assert owed(made, NOON + 30) == pytest.approx([100])
    assert taken(made, "b", 50, NOON + 60)
    made.settle("b", Cost(20, 0), NOON + 60)
    assert owed(made, NOON + 60) == pytest.approx([20])


def test_what_the_store_granted_is_not_owed_unless_the_store_forgot() -> None:
    made = share(DAY)
    made.granted("a", made.accounts([SCOPE]), Cost(90, 0), NOON)
    made.seen(made.accounts([SCOPE]), [500], NOON)
    assert owed(made) == []
    assert list(made.shared()) == ["a"]
    made.forgotten(NOON)
    assert owed(made) == [90]
    assert list(made.shared()) == []
    assert [number for number, _ in made.untold(10)] == ["a"]


def test_what_the_store_gave_back_too_early_is_owed_again() -> None:
    made = share(DAY)
    made.granted("a", made.accounts([SCOPE]), Cost(90, 0), NOON)
    made.given_back(["a", "gone"], NOON)
    made.given_back(["a"], NOON)
    assert owed(made) == [90]
    assert [number for number, _ in made.untold(10)] == ["a"]


def test_what_the_store_gave_back_takes_nothing_from_what_is_owed() -> None:
    made = share(DAY)
    made.granted("a", made.accounts([SCOPE]), Cost(90, 0), NOON)
    made.seen(made.accounts([SCOPE]), [90], NOON)
    assert taken(made, "b", 60)
    made.settle("a", None, NOON)
    assert owed(made) == [60]


def test_a_clock_that_goes_back_gives_nothing_back_and_goes_on_from_there() -> None:
    made = share(MINUTE)
    assert taken(made, "a", 200)
    assert not taken(made, "b", 1, NOON - 3600)
    assert taken(made, "b", 100, NOON - 3600 + 30)


def test_what_was_taken_for_the_time_before_the_store_told_it_does_not_last() -> None:
    made = Share(3)
    made.configure({SCOPE: [DAY, MINUTE]}, NOON * 2)
    made.seen(made.accounts([SCOPE]), [600, 600], NOON)
    assert not taken(made, "a", 1)
    assert taken(made, "b", 200, NOON + 86_400)


def test_no_request_holds_twice_and_what_ended_holds_nothing() -> None:
    made = share(DAY)
    assert taken(made, "a", 1)
    with pytest.raises(ValueError, match="holds its share already"):
        taken(made, "a", 1)
    assert made.settle("a", Cost(5, 0), NOON) is not None
    assert made.settle("a", None, NOON) is None
    assert (len(made), made.holds("a")) == (0, None)
    assert owed(made) == [5]


def test_limits_are_above_zero_and_given_once() -> None:
    with pytest.raises(ValueError, match="above zero"):
        share(DAY, DAY)
    with pytest.raises(ValueError, match="above zero"):
        share(Limit(Unit.TOKENS, Window.DAY, 0))


class Fleet(RuleBasedStateMachine):
    """Three replicas and a store, in any order of requests, ends, absences and losses."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas = [share(DAY) for _ in range(3)]
        self.held: list[tuple[int, str, int]] = []
        self.store: dict[str, int] = {}
        self.told = 0.0
        self.away = False
        self.used = 0
        self.number = 0

    @rule(at=st.integers(0, 2), tokens=st.integers(0, 200))
    def asks(self, at: int, tokens: int) -> None:
        self.number += 1
        replica, number = self.replicas[at], f"r{self.number}"
        if self.away:
            granted = taken(replica, number, tokens)
        elif granted := self.told + tokens <= DAY.amount or tokens == 0:
            replica.granted(number, replica.accounts([SCOPE]), Cost(tokens, 0), NOON)
            self.store[number] = tokens
            self.told += tokens
        if granted:
            self.held.append((at, number, tokens))
            self.used += tokens
        if not self.away:
            self.see()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        at, number, tokens = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        spent = data.draw(st.integers(0, tokens))
        held = self.replicas[at].settle(number, Cost(spent, 0), NOON)
        assert held is not None
        self.used -= tokens - spent
        if held.shared and number in self.store:
            # Away, it is told when the store is back; it comes before anybody asks.
            self.told -= self.store.pop(number) - spent
        if not self.away:
            self.see()

    @precondition(lambda self: not self.away)
    @rule()
    def goes(self) -> None:
        self.away = True

    @precondition(lambda self: self.away)
    @rule(forgot=st.booleans())
    def comes_back(self, forgot: bool) -> None:
        self.away = False
        if forgot:
            self.store.clear()
            self.told = 0
            for replica in self.replicas:
                replica.forgotten(NOON)
        for replica in self.replicas:
            self.told += sum(owed(replica))
            self.store |= {number: held.cost.input_tokens for number, held in replica.untold(1000)}
        self.see()

    def see(self) -> None:
        for replica in self.replicas:
            replica.seen(replica.accounts([SCOPE]), [self.told], NOON)

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        assert self.used <= DAY.amount

    @invariant()
    def the_store_knows_everything_while_it_is_there(self) -> None:
        if not self.away:
            assert self.told == pytest.approx(self.used)
            assert set(self.store) == {number for _, number, _ in self.held}
        assert sum(map(len, self.replicas)) == len(self.held)


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
