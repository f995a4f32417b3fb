import sys

import pytest

from bench import sides
from bench.processes import NotReady
from tidegate import config


def test_tidegate_takes_the_configuration_that_it_is_measured_with() -> None:
    text = sides.tidegate_settings([1001, 1002, 1003, 1004, 1005], [2001, 2002], threads=3, policy="round_robin")
    found = config.parse(text.encode(), "bench")
    assert (found.listener.port, found.admin.port) == (1001, 1002)
    assert (found.control.xds_port, found.control.ext_proc_port) == (1003, 1004)
    assert (found.envoy.admin_port, found.envoy.concurrency) == (1005, 3)
    assert found.pools[0].policy == "round_robin"
    assert [endpoint.address for endpoint in found.pools[0].endpoints] == ["127.0.0.1:2001", "127.0.0.1:2002"]


def test_the_output_of_a_command_is_what_it_prints() -> None:
    assert sides.output([sys.executable, "-c", "print('node: {}')"]) == "node: {}\n"


def test_a_command_that_fails_is_reported_with_its_reason() -> None:
    with pytest.raises(NotReady, match=r"(?s)status 2: .*no such pool"):
        sides.output([sys.executable, "-c", "import sys; print('no such pool', file=sys.stderr); sys.exit(2)"])


def test_a_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "BOOTSTRAP_SECONDS", 0.2)
    with pytest.raises(NotReady, match=r"did not end within 0\.2 s"):
        sides.output([sys.executable, "-c", "import time; time.sleep(60)"])
