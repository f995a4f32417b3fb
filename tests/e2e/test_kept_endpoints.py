"""A control plane that comes back while its directory is away, behind a real Envoy."""

from pathlib import Path

from tests.e2e.stack import engines, fetch, until, up
from tests.e2e.test_discovery import discovering, in_envoy, write


def test_requests_are_served_after_a_restart_though_the_directory_is_gone(tmp_path: Path) -> None:
    file, state = tmp_path / "endpoints.yaml", tmp_path / "state"
    state.mkdir()
    with engines(tmp_path, "h100", "h100") as ports:
        write(file, *ports)
        config = discovering(file={"path": str(file)})
        config["control"]["state_dir"] = str(state)
        with up(tmp_path, config) as stack:
            assert stack.ask()[0] == 200
            until((state / "endpoints.json").exists, 10, "what was found is kept")
        file.unlink()
        again = tmp_path / "again"
        again.mkdir()
        with up(again, config) as stack:
            assert in_envoy(stack) == {f"127.0.0.1:{port}" for port in ports}
            assert stack.ask()[0] == 200
            assert fetch(f"{stack.admin}/readyz")[0] == 200
            assert stack.total("tidegate_discovery_stage", stage="failing", pool="default", source="file") == 1
            assert fetch(f"{stack.admin}/xds")[1]["clients"][0]["up_to_date"] is True
            write(file, ports[0])
            until(lambda: in_envoy(stack) == {f"127.0.0.1:{ports[0]}"}, 20, "the directory is believed again")
