"""The part that hears GPU agents: what the fleet is told, what is exported, and what silence is."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tests.configurations import parsed
from tests.fleet.declare import fleet_of, seen
from tests.health.reports import GIB, engine, gpu, report
from tests.runtime.agents_plane import FIRST, SECOND, Plane, failed
from tidegate.fleet.events import PoolsDeclared, ScrapeFailed
from tidegate.fleet.evidence import Verdict
from tidegate.health.registry import FORGET_SECONDS
from tidegate.health.reported import Condition
from tidegate.runtime import parts
from tidegate.runtime.agents import Agents
from tidegate.runtime.part import Surroundings
from tidegate.telemetry.metrics import Metrics


@pytest.fixture
def plane() -> Plane:
    return Plane({"address": FIRST, "node": "gpu-7"}, {"address": SECOND, "node": "gpu-8"})


def test_there_is_such_a_part_where_the_configuration_asks_for_it() -> None:
    config = parsed({"agents": {}, "pools": [{"name": "p", "endpoints": [{"address": FIRST}]}]})
    for wanted in (config, config.model_copy(update={"agents": None})):
        surroundings = Surroundings(fleet_of(), lambda _: None, Metrics(tuple, int), wanted, lambda: None)
        made = [part for part in parts.made(surroundings) if isinstance(part, Agents)]
        assert len(made) == (wanted is config)


def test_what_an_agent_says_is_evidence_on_the_endpoints_of_its_node_and_on_no_other(plane: Plane) -> None:
    plane.hear(failed())
    assert plane.verdict() == (Verdict.FAILED, ("xid_79",))
    assert plane.verdict(SECOND) is None
    plane.hear(report(gpu(0), sequence=2))
    assert plane.verdict() == (Verdict.SOUND, ())


def test_a_silent_agent_is_unknown_and_no_failure(plane: Plane) -> None:
    plane.hear(report(gpu(0)))
    plane.now += 6.0
    assert plane.verdict() == (Verdict.SOUND, ())
    plane.now += 0.1
    assert plane.verdict() is None
    assert 'tidegate_agent_up{node="gpu-7"} 0.0' in plane.page()
    assert "tidegate_gpu_memory" not in "".join(line for line in plane.page().splitlines() if line[0] != "#")


def test_vram_bounds_requests_until_the_agent_is_silent(plane: Plane) -> None:
    plane.hear(report(gpu(0, memory_free_bytes=GIB // 8)))
    assert seen(plane.fleet, FIRST, plane.now).vram_room_tokens == 1024
    plane.now += 6.1
    assert seen(plane.fleet, FIRST, plane.now).vram_room_tokens is None


def test_an_engine_that_answers_its_node_and_not_us_has_a_reason_for_that(plane: Plane) -> None:
    for _ in range(3):
        plane.apply(ScrapeFailed(FIRST, unreachable=True, reason="refused"))
    plane.hear(report(gpu(0), engines=(engine("http://127.0.0.1:8000"),)))
    assert plane.verdict() == (Verdict.IMPAIRED, ("answers_only_locally",))


def test_the_first_node_that_speaks_for_an_endpoint_is_the_only_one_while_it_speaks() -> None:
    plane = Plane({"address": "127.0.0.1:8001"})
    asks = (engine("http://127.0.0.1:8001"),)
    plane.hear(report(gpu(0), engines=asks))
    liar = report(gpu(0, Condition.FAILED, "xid_79"), node="gpu-8", engines=asks)
    plane.hear(liar)
    assert plane.verdict("127.0.0.1:8001") == (Verdict.SOUND, ())
    assert 'tidegate_agent_reports_total{outcome="claimed"} 1.0' in plane.page()
    plane.now += 6.1
    plane.hear(liar._replace(sequence=2))
    assert plane.verdict("127.0.0.1:8001") == (Verdict.FAILED, ("xid_79",))


@pytest.mark.parametrize(
    ("agents", "url", "heard"),
    [
        ({}, "http://127.0.0.1:8001", True),
        ({"address": "0.0.0.0", "insecure": True}, "http://127.0.0.1:8001", False),
        ({"address": "0.0.0.0", "insecure": True}, "http://10.0.0.9:8001", True),
    ],
)
def test_an_agent_is_believed_about_engines_on_this_machine_if_it_can_only_be_here(
    agents: dict[str, Any], url: str, heard: bool
) -> None:
    address = url.removeprefix("http://")
    plane = Plane({"address": address}, **agents)
    plane.hear(report(gpu(0), engines=(engine(url),)))
    assert (plane.verdict(address) is not None) is heard


def test_a_report_of_a_node_without_endpoints_is_said_once(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for sequence in (1, 2):
        plane.hear(report(gpu(0), node="stranger", sequence=sequence))
    assert [record.getMessage() for record in caplog.records].count(
        "a GPU agent reports, and no endpoint is known to be on its node"
    ) == 1


def test_silence_and_its_end_are_said_once_each(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    plane.hear(report(gpu(0)))
    plane.part.look()
    plane.now += 6.1
    plane.part.look()
    plane.part.look()
    plane.hear(report(gpu(0), sequence=2))
    assert [record.getMessage() for record in caplog.records] == ["GPU agent silent", "GPU agent heard again"]


def test_figures_are_exported_by_node_and_gpu(plane: Plane) -> None:
    plane.hear(report(gpu(0, celsius=61), gpu(1, Condition.FAILED, "xid_79")))
    page = plane.page()
    assert 'tidegate_gpu_temperature_celsius{gpu="0",node="gpu-7"} 61.0' in page
    assert 'tidegate_gpu_temperature_celsius{gpu="1"' not in page
    assert 'tidegate_gpu_state{gpu="1",node="gpu-7",state="failed"} 1.0' in page
    assert 'tidegate_gpu_reason{gpu="1",node="gpu-7",reason="xid_79"} 1.0' in page


def test_a_node_that_endpoints_name_and_nobody_speaks_for_is_seen_to_be_missing(plane: Plane) -> None:
    plane.hear(report(gpu(0), node="gpu-7"))
    page = plane.page()
    assert 'tidegate_agent_up{node="gpu-7"} 1.0' in page
    assert 'tidegate_agent_up{node="gpu-8"} 0.0' in page
    assert 'tidegate_agent_age_seconds{node="gpu-8"}' not in page


def test_a_node_that_nobody_names_is_forgotten_after_long_silence(plane: Plane) -> None:
    plane.hear(report(gpu(0), node="gone"))
    plane.hear(report(gpu(0), node="gpu-7"))
    plane.now += FORGET_SECONDS + 1
    page = plane.page()
    assert 'node="gone"' not in page
    assert 'tidegate_agent_up{node="gpu-7"} 0.0' in page


def test_what_cannot_be_true_is_counted_by_field(plane: Plane) -> None:
    plane.hear(report(gpu(0), dropped=("celsius", "gpu_percent")))
    plane.part.refused("stale")
    plane.part.silent("gpu-7")
    page = plane.page()
    assert 'tidegate_agent_dropped_fields_total{field="celsius"} 1.0' in page
    assert 'tidegate_agent_reports_total{outcome="stale"} 1.0' in page
    assert 'tidegate_agent_reports_total{outcome="taken"} 1.0' in page


def test_the_page_of_the_nodes_says_what_they_said(plane: Plane) -> None:
    plane.hear(report(gpu(0, Condition.FAILED, "xid_79"), engines=(engine("tcp://10.0.0.7:8000"),)))
    (node,) = plane.nodes()
    assert (node["node"], node["silent"], node["endpoints"]) == ("gpu-7", False, [FIRST])
    assert node["gpus"][0]["reasons"][0]["code"] == "xid_79"
    assert node["engines"] == [{"url": "tcp://10.0.0.7:8000", "answer": "answers", "http_status": None}]


def test_an_endpoint_that_is_gone_is_nobodys(plane: Plane) -> None:
    plane.hear(report(gpu(0)))
    plane.part.follow(plane.config, PoolsDeclared(()))
    plane.hear(failed(sequence=2))
    assert plane.part._claims == {}
    assert plane.part._unreachable == set()


def test_the_metrics_that_are_documented_are_those_that_there_are(plane: Plane) -> None:
    plane.hear(report(gpu(0)))
    exported = set(re.findall(r"^# TYPE (tidegate_(?:gpu|agent)_\w+) ", plane.page(), re.MULTILINE))
    text = (Path(__file__).parents[2] / "docs/gpu_agent.md").read_text()
    named = set(re.findall(r"`(tidegate_(?:gpu|agent)_\w+)`", text))
    assert named <= exported
    assert {name for name in exported if not name.endswith(("_used_bytes", "_free_bytes", "_lost"))} - named == {
        *("tidegate_gpu_ecc_uncorrected_errors_total", "tidegate_gpu_row_remap_failed")
    }
