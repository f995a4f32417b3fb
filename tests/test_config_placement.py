"""Lanes and sessions in the configuration: what they may say, and what is said about what they may not."""

from typing import Any

import pytest

from tests.configurations import EXAMPLE, changed, faults, parsed
from tidegate.config import parse
from tidegate.discovery import static
from tidegate.scheduling.lanes import Lane


def test_without_them_nothing_is_kept_apart() -> None:
    config = parse(EXAMPLE, "tidegate.yaml")
    assert config.pools[0].lanes == ()
    assert static.policies(config)["default"].lanes == ()
    assert not static.declared(config).pools[0].reckons
    assert (config.session.header, config.session.cookie, config.session.body_field) == (None, None, None)


def test_lanes_are_handed_on_to_the_policy_and_what_endpoints_work_on_is_reckoned() -> None:
    config = parsed(changed("pools.0.lanes", [{"above_tokens": 20_000, "share": 0.25}]))
    pool = config.pools[0]
    assert static.policies(config)[pool.name].lanes == (Lane(20_000, 0.25),)
    assert static.declared(config).pools[0].reckons
    address = pool.endpoints[0].address
    config = parsed(changed("pools.0.lanes", [{"above_tokens": 20_000, "endpoints": [address]}]))
    assert static.policies(config)[pool.name].lanes == (Lane(20_000, endpoints=(address,)),)


SHARE, MUCH = {"above_tokens": 20_000, "share": 0.25}, {"above_tokens": 30_000, "share": 0.8}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("pools.0.lanes", [{"share": 0.5}], "pools[0].lanes[0].above_tokens: "),
        ("pools.0.lanes", [{"above_tokens": 5}], "pools[0].lanes[0]: expected either share or endpoints"),
        ("pools.0.lanes", [SHARE, {**SHARE}], "pools[0].lanes[1].above_tokens: 20000 is given already"),
        ("pools.0.lanes", [SHARE, MUCH], "pools[0].lanes: expected shares below 1 together"),
        ("pools.0.lanes", [{**SHARE, "share": 0}], "pools[0].lanes[0].share: expected at least 0.01"),
        (
            "pools.0.lanes",
            [{"above_tokens": 5, "endpoints": ["10.9.9.9:1"]}],
            "pools[0].lanes[0].endpoints: expected endpoints of the pool, not '10.9.9.9:1'",
        ),
        ("session.header", "Bad Header", "session.header: expected the name of a header in lower case"),
        ("session.header", "x'] + '", "session.header: expected the name of a header in lower case"),
        ("session.header", "x-request-id", "session.header: expected the name of a header in lower case"),
        ("session.cookie", "a=b", "session.cookie: expected the name of a cookie"),
        ("session.cookie", "", "session.cookie: expected the name of a cookie"),
        ("session.body_field", "a..b", "session.body_field: expected a field's name, or up to four"),
        ("session.path", "a", "session.path: "),
    ],
)
def test_what_makes_no_sense_is_said_with_its_place(path: str, value: Any, said: str) -> None:
    (line,) = faults(changed(path, value))
    assert said in line
