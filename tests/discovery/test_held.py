"""What is held to be true of what a source says."""

from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.told import found
from tidegate.discovery.contract import MAX_ENDPOINTS, Failed, Found, News, Removed, Reset, Upserted
from tidegate.discovery.held import MAX_NAMED, Held, LeftOut, Rules, Stage
from tidegate.fleet.endpoint import EndpointSpec


def held(shrink: float = 0.5, hold: float = 30.0, linger: float = 0.0) -> Held:
    return Held(Rules(lambda _: True, shrink, hold, linger))


def everything(*addresses: str) -> Reset:
    return Reset({address: found(address) for address in addresses})


def shown(tested: Held) -> list[str]:
    return [one.endpoint.address for one in tested.endpoints]


def said(tested: Held, news: News, now: float) -> list[str]:
    tested.take(news, now)
    tested.settle(now)
    return shown(tested)


def test_nothing_counts_before_the_first_complete_pass() -> None:
    tested = held()
    assert said(tested, Upserted("a", found("10.0.0.1:1")), 0.0) == []
    assert not tested.ready
    assert tested.stage is Stage.WAITING
    assert said(tested, everything("10.0.0.1:1", "10.0.0.2:1"), 1.0) == ["10.0.0.1:1", "10.0.0.2:1"]
    assert tested.ready


def test_additions_changes_and_removals_count_at_once() -> None:
    tested = held()
    said(tested, everything("10.0.0.1:1", "10.0.0.2:1"), 0.0)
    assert said(tested, Upserted("c", found("10.0.0.3:1")), 1.0) == ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]
    tested.take(Upserted("c", found("10.0.0.3:1", 7)), 2.0)
    assert tested.settle(2.0)
    assert tested.endpoints[2].endpoint.weight == 7
    assert said(tested, Removed("10.0.0.1:1"), 3.0) == ["10.0.0.2:1", "10.0.0.3:1"]
    assert not tested.settle(4.0)


def test_a_name_that_comes_to_mean_another_address_moves() -> None:
    tested = held()
    said(tested, Reset({"pod": found("10.0.0.1:1"), "other": found("10.0.0.9:1")}), 0.0)
    assert said(tested, Upserted("pod", found("10.0.0.2:1")), 1.0) == ["10.0.0.9:1", "10.0.0.2:1"]


def test_of_two_at_one_address_the_one_that_stays_counts() -> None:
    """A pod may get the address of one that is still being deleted."""
    tested = held()
    leaving = Found(EndpointSpec("10.0.0.1:1", drain=True))
    said(tested, Reset({"old": leaving, "new": found("10.0.0.1:1")}), 0.0)
    assert [one.endpoint.drain for one in tested.endpoints] == [False]
    said(tested, Reset({"new": found("10.0.0.1:1"), "old": leaving}), 1.0)
    assert [one.endpoint.drain for one in tested.endpoints] == [False]
    said(tested, Removed("new"), 2.0)
    assert [one.endpoint.drain for one in tested.endpoints] == [True]


def test_what_was_known_before_is_held_to_the_rules_of_now() -> None:
    rules = Rules(lambda address: address != "127.0.0.1:1")
    tested = Held(rules, (found("10.0.0.1:1"), found("127.0.0.1:1")))
    assert shown(tested) == ["10.0.0.1:1"]


def test_a_failure_changes_nothing_but_what_is_counted() -> None:
    tested = held()
    said(tested, everything("10.0.0.1:1"), 0.0)
    assert said(tested, Failed("HTTP 500"), 5.0) == ["10.0.0.1:1"]
    assert (tested.errors, tested.reason, tested.good_at, tested.stage) == (1, "HTTP 500", 0.0, Stage.FAILING)
    said(tested, everything("10.0.0.1:1"), 6.0)
    assert (tested.errors, tested.reason, tested.good_at, tested.stage) == (1, "", 6.0, Stage.GOOD)


def test_an_empty_answer_over_a_full_one_must_be_confirmed_by_a_later_pass() -> None:
    tested = held(hold=30.0)
    said(tested, everything("10.0.0.1:1"), 0.0)
    assert said(tested, everything(), 10.0) == ["10.0.0.1:1"]
    assert tested.stage is Stage.HELD
    assert said(tested, everything(), 39.0) == ["10.0.0.1:1"]
    assert not tested.asks(39.0)
    assert tested.due() == 40.0
    tested.settle(41.0)
    assert shown(tested) == ["10.0.0.1:1"], "time alone confirms nothing"
    assert tested.asks(41.0)
    assert said(tested, Failed("no answer"), 42.0) == ["10.0.0.1:1"]
    assert said(tested, everything(), 43.0) == []
    assert tested.due() is None


def test_a_set_that_shrinks_by_more_than_its_share_is_held_and_additions_are_not() -> None:
    tested = held(shrink=0.5, hold=30.0)
    said(tested, everything(*(f"10.0.0.{i}:1" for i in range(10))), 0.0)
    assert len(said(tested, everything(*(f"10.0.0.{i}:1" for i in range(5))), 1.0)) == 5
    assert said(tested, everything("10.0.0.1:1", "10.0.0.77:1"), 2.0)[-1] == "10.0.0.77:1"
    assert len(shown(tested)) == 6
    assert said(tested, everything("10.0.0.1:1", "10.0.0.77:1"), 33.0) == ["10.0.0.1:1", "10.0.0.77:1"]


def test_a_set_that_is_replaced_as_a_whole_is_not_held() -> None:
    tested = held()
    said(tested, everything("10.0.0.1:1", "10.0.0.2:1"), 0.0)
    assert said(tested, everything("10.0.1.1:1", "10.0.1.2:1"), 1.0) == ["10.0.1.1:1", "10.0.1.2:1"]


def test_what_comes_back_in_time_was_never_gone() -> None:
    """All checks of a service fail for two seconds: nobody notices."""
    tested = held(linger=3.0)
    said(tested, everything("10.0.0.1:1", "10.0.0.2:1"), 0.0)
    tested.take(everything(), 1.0)
    assert not tested.settle(1.0)
    tested.take(everything("10.0.0.1:1", "10.0.0.2:1"), 3.0)
    assert not tested.settle(3.0)
    assert tested.due() is None
    assert said(tested, everything("10.0.0.2:1"), 50.0) == ["10.0.0.1:1", "10.0.0.2:1"]


def test_what_lingers_goes_when_a_later_pass_does_not_say_it_either() -> None:
    tested = held(linger=3.0)
    said(tested, everything("10.0.0.1:1", "10.0.0.2:1"), 0.0)
    assert said(tested, everything("10.0.0.2:1"), 1.0) == ["10.0.0.1:1", "10.0.0.2:1"]
    assert tested.due() == 4.0
    tested.settle(5.0)
    assert shown(tested) == ["10.0.0.1:1", "10.0.0.2:1"]
    assert tested.asks(5.0)
    assert said(tested, everything("10.0.0.2:1"), 5.0) == ["10.0.0.2:1"]


def test_what_is_not_allowed_is_left_out_and_counted() -> None:
    tested = Held(Rules(lambda address: address.startswith("10.")))
    assert said(tested, everything("10.0.0.1:1", "127.0.0.1:1", "169.254.169.254:80"), 0.0) == ["10.0.0.1:1"]
    assert tested.refused == 2


def test_no_more_is_kept_than_the_bound() -> None:
    tested = held()
    many = {str(i): found(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}:1") for i in range(MAX_ENDPOINTS + 5)}
    assert len(said(tested, Reset(many), 0.0)) == MAX_ENDPOINTS
    assert tested.refused == 5
    said(tested, Upserted("one more", found("11.0.0.1:1")), 1.0)
    assert len(tested._said) == MAX_ENDPOINTS + 5


def test_what_another_source_said_before_goes_on_until_the_first_pass() -> None:
    tested = Held(Rules(lambda _: True), (found("10.0.0.1:1"),))
    assert said(tested, Failed("down"), 0.0) == ["10.0.0.1:1"]
    assert said(tested, everything(), 1.0) == ["10.0.0.1:1"], "an empty one is held as any other"
    assert said(tested, everything("10.0.0.2:1"), 2.0) == ["10.0.0.2:1"]


NAMES = st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"])
NEWS = st.one_of(
    st.builds(lambda names: everything(*names), st.lists(NAMES)),
    st.builds(lambda name: Upserted(name, found(name)), NAMES),
    st.builds(Removed, NAMES),
    st.builds(Failed, st.text()),
)


@given(st.lists(st.tuples(NEWS, st.floats(0, 20))), st.lists(NAMES, unique=True), st.sampled_from([0.0, 3.0]))
def test_whatever_was_said_the_last_word_holds_in_the_end(
    story: list[tuple[News, float]], last: list[str], linger: float
) -> None:
    tested, now, full = held(linger=linger), 0.0, False
    for news, pause in story:
        now += pause
        said(tested, news, now)
        assert len(shown(tested)) == len(set(shown(tested)))
        full = full or bool(shown(tested))
    for _ in range(5):
        said(tested, everything(*last), now)
        now = max(now, tested.due() or 0.0)
    assert set(shown(tested)) == set(last)


@given(st.lists(NEWS))
def test_without_a_pause_a_full_set_never_becomes_empty(story: list[News]) -> None:
    tested = held()
    said(tested, everything("10.0.0.9:1"), 0.0)
    for news in story:
        assert said(tested, news, 1.0)


def test_the_first_that_are_left_out_are_named_with_the_reason() -> None:
    tested = Held(Rules(lambda address: address.startswith("10."), why_not="elsewhere"))
    others = [f"127.0.0.1:{port}" for port in range(1, 10)]
    assert said(tested, everything("10.0.0.1:1", *others), 0.0) == ["10.0.0.1:1"]
    assert tested.refused == len(others)
    assert tested.left_out == tuple(LeftOut(address, "elsewhere") for address in others[:MAX_NAMED])
    said(tested, everything("10.0.0.1:1"), 1.0)
    assert (tested.refused, tested.left_out) == (0, ())


def test_of_too_many_endpoints_it_is_said_that_they_are_too_many() -> None:
    tested = held()
    said(tested, Reset({str(n): found(f"10.0.{n // 250}.{n % 250}:1") for n in range(MAX_ENDPOINTS + 1)}), 0.0)
    ((address, reason),) = tested.left_out
    assert (address, tested.refused) == ("10.0.40.0:1", 1)
    assert str(MAX_ENDPOINTS) in reason
