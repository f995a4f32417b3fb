import sys
from pathlib import Path

import pytest

from bench import bare_ext_proc, envoy, sides
from bench.processes import NotReady
from protos import ext_proc_pb2
from tidegate import config


def there_is_an_envoy() -> bool:
    try:
        return bool(envoy.binary())
    except FileNotFoundError:
        return False


def test_tidegate_takes_the_configuration_that_it_is_measured_with() -> None:
    text = sides.tidegate_settings([1001, 1002, 1003, 1004, 1005], [2001, 2002], threads=3, policy="round_robin")
    found = config.parse(text.encode(), "bench")
    assert (found.listener.port, found.admin.port) == (1001, 1002)
    assert (found.control.xds_port, found.control.ext_proc_port) == (1003, 1004)
    assert (found.envoy.admin_port, found.envoy.concurrency) == (1005, 3)
    assert found.pools[0].policy == "round_robin"
    assert [endpoint.address for endpoint in found.pools[0].endpoints] == ["127.0.0.1:2001", "127.0.0.1:2002"]


def test_the_bare_service_lets_go_on_and_then_names_its_endpoint() -> None:
    go_on, decision = map(ext_proc_pb2.ProcessingResponse.FromString, bare_ext_proc.replies("127.0.0.1:1"))
    assert (go_on.WhichOneof("response"), decision.WhichOneof("response")) == ("request_headers", "request_body")
    named = decision.dynamic_metadata.fields["envoy.lb"].struct_value.fields["x-gateway-destination-endpoint"]
    assert named.string_value == "127.0.0.1:1"


@pytest.mark.skipif(not there_is_an_envoy(), reason="no Envoy on this machine")
def test_requests_pass_through_envoy_with_the_bare_service(tmp_path: Path) -> None:
    with sides.engines(tmp_path, 2) as (_, ports), sides.bare(tmp_path, "bare", ports, 1) as side:
        assert sorted(side.pids) == ["control", "envoy"]


def test_the_output_of_a_command_is_what_it_prints() -> None:
    assert sides.output([sys.executable, "-c", "print('node: {}')"]) == "node: {}\n"


def test_a_command_that_fails_is_reported_with_its_reason() -> None:
    with pytest.raises(NotReady, match=r"(?s)status 2: .*no such pool"):
        sides.output([sys.executable, "-c", "import sys; print('no such pool', file=sys.stderr); sys.exit(2)"])


def test_a_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "BOOTSTRAP_SECONDS", 0.2)
    with pytest.raises(NotReady, match=r"did not end within 0\.2 s"):
        sides.output([sys.executable, "-c", "import time; time.sleep(60)"])
