"""The alert rules: that Prometheus takes them, that each fires when it should, that what they ask for exists."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.configurations import parsed
from tidegate.fleet.state import Fleet
from tidegate.runtime import parts
from tidegate.runtime.certificates import Certificates
from tidegate.runtime.part import Surroundings
from tidegate.runtime.xds_clients import XdsClients
from tidegate.telemetry import sharing
from xds.server import DiscoveryServer

PROMETHEUS = Path(__file__).resolve().parent.parent / "deploy" / "prometheus"
ENDPOINT = 'job="tidegate",instance="c:9090",pool="p",endpoint="10.0.0.1:8000"'
POOL = 'job="tidegate",instance="c:9090",pool="p"'
CONTROL = 'job="tidegate",instance="c:9090"'
NODE = f'{CONTROL},node="gpu-7"'
GPU = f'{NODE},gpu="0"'

# Alert: series that make it fire within half an hour, as promtool writes them (a+bxn: n steps of b; _: no sample).
FIRING: dict[str, dict[str, str]] = {
    "TidegateDown": {f"up{{{CONTROL}}}": "0x60"},
    "TidegatePoolUnreachable": {f"tidegate_endpoint_up{{{ENDPOINT}}}": "1x10 0x50"},
    "TidegateEndpointUnreachable": {f"tidegate_endpoint_up{{{ENDPOINT}}}": "1x10 0x50"},
    "TidegatePoolPanic": {f"tidegate_pool_panic{{{POOL}}}": "0x10 1x50"},
    "TidegateEndpointEjected": {f'tidegate_endpoint_health{{{ENDPOINT},status="ejected"}}': "_x10 1x50"},
    "TidegateEndpointSilent": {f"tidegate_scrape_age_seconds{{{ENDPOINT}}}": "0+30x60"},
    "TidegateWithoutEnvoy": {f"tidegate_xds_open_streams{{{CONTROL}}}": "1x10 0x50"},
    # The first rejection of all: a series that begins with 1.
    "TidegateConfigurationRejectedByEnvoy": {f'tidegate_xds_nacks_total{{{CONTROL},type="listener"}}': "_x50 1x10"},
    "TidegateEnvoyRefused": {f"tidegate_xds_refused_streams_total{{{CONTROL}}}": "0x50 1x10"},
    "TidegateFailsOpen": {f"tidegate_failed_open_total{{{POOL}}}": "_x50 3x10"},
    "TidegateReloadRefused": {f"tidegate_config_last_reload_success{{{CONTROL}}}": "1x10 0x50"},
    "TidegateErrors": {
        f'tidegate_requests_total{{{POOL},outcome="ok"}}': "0+90x60",
        f'tidegate_requests_total{{{POOL},outcome="timeout"}}': "0+10x60",
    },
    "TidegateSlowFirstToken": {
        f'tidegate_time_to_first_token_seconds_bucket{{{POOL},le="10"}}': "0+50x60",
        f'tidegate_time_to_first_token_seconds_bucket{{{POOL},le="30"}}': "0+100x60",
        f'tidegate_time_to_first_token_seconds_bucket{{{POOL},le="+Inf"}}': "0+100x60",
    },
    "TidegateKvCacheFull": {f"tidegate_endpoint_kv_usage_ratio{{{ENDPOINT}}}": "0.99x60"},
    "TidegateGpuFailed": {f'tidegate_gpu_state{{{GPU},state="failed"}}': "0x10 1x50"},
    "TidegateGpuDegraded": {f'tidegate_gpu_state{{{GPU},state="degraded"}}': "0x10 1x50"},
    "TidegateGpuAgentSilent": {f"tidegate_agent_up{{{NODE}}}": "1x10 0x50"},
    "TidegateGpuAgentRefused": {f'tidegate_agent_reports_total{{{CONTROL},outcome="identity"}}': "_x50 1x10"},
    "TidegateRequestEndsNotReported": {f"tidegate_reservations_expired_total{{{CONTROL}}}": "0+1x60"},
    "TidegateLimitsNotShared": {f"tidegate_redis_shared{{{CONTROL}}}": "1x10 0x50"},
    "TidegateRequestQuarantined": {f"tidegate_quarantined_requests{{{CONTROL}}}": "0x10 1x50"},
    # Time begins at 0 there.
    "TidegateCertificateExpires": {
        f'tidegate_certificate_expiry_timestamp_seconds{{{CONTROL},name="listener.tls.certificate"}}': "200000x60"
    },
    "TidegateCertificateRefused": {
        f'tidegate_certificate_refused{{{CONTROL},name="listener.tls.certificate"}}': "0x10 1x50"
    },
}
# The same series when all is well, each for half an hour.
QUIET: dict[str, str] = {
    f"up{{{CONTROL}}}": "1x60",
    f"tidegate_endpoint_up{{{ENDPOINT}}}": "1x60",
    f"tidegate_scrape_age_seconds{{{ENDPOINT}}}": "1x60",
    f"tidegate_pool_panic{{{POOL}}}": "0x60",
    f'tidegate_endpoint_health{{{ENDPOINT},status="healthy"}}': "1x60",
    f"tidegate_xds_open_streams{{{CONTROL}}}": "1x60",
    f'tidegate_xds_nacks_total{{{CONTROL},type="listener"}}': "3x60",
    f"tidegate_xds_refused_streams_total{{{CONTROL}}}": "2x60",
    f"tidegate_failed_open_total{{{POOL}}}": "7x60",
    f"tidegate_config_last_reload_success{{{CONTROL}}}": "1x60",
    f'tidegate_requests_total{{{POOL},outcome="ok"}}': "0+99x60",
    f'tidegate_requests_total{{{POOL},outcome="client_error"}}': "0+50x60",
    f'tidegate_requests_total{{{POOL},outcome="timeout"}}': "0+1x60",
    f'tidegate_time_to_first_token_seconds_bucket{{{POOL},le="10"}}': "0+100x60",
    f'tidegate_time_to_first_token_seconds_bucket{{{POOL},le="+Inf"}}': "0+100x60",
    f"tidegate_endpoint_kv_usage_ratio{{{ENDPOINT}}}": "0.9x60",
    f'tidegate_gpu_state{{{GPU},state="healthy"}}': "1x60",
    f'tidegate_gpu_state{{{GPU},state="degraded"}}': "0x60",
    f'tidegate_gpu_state{{{GPU},state="failed"}}': "0x60",
    f"tidegate_agent_up{{{NODE}}}": "1x60",
    f'tidegate_agent_reports_total{{{CONTROL},outcome="taken"}}': "0+30x60",
    f'tidegate_agent_reports_total{{{CONTROL},outcome="identity"}}': "3x60",
    f"tidegate_reservations_expired_total{{{CONTROL}}}": "5x60",
    f"tidegate_redis_shared{{{CONTROL}}}": "1x60",
    f'tidegate_certificate_expiry_timestamp_seconds{{{CONTROL},name="listener.tls.certificate"}}': "900000x60",
    f'tidegate_certificate_refused{{{CONTROL},name="listener.tls.certificate"}}': "0x60",
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def promtool(*arguments: str) -> str:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on this machine")
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_alert_has_a_case_here_a_severity_and_a_summary() -> None:
    assert [rule["alert"] for rule in rules()] == list(FIRING)
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    assert f"{len(FIRING)} rules found" in promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))


@pytest.mark.parametrize("alert", FIRING)
def test_the_alert_fires_when_it_should(alert: str, tmp_path: Path) -> None:
    promtool("test", "rules", scenario(tmp_path, FIRING[alert], {alert: True}))


def test_no_alert_fires_while_all_is_well(tmp_path: Path) -> None:
    promtool("test", "rules", scenario(tmp_path, QUIET, dict.fromkeys(FIRING, False)))


def scenario(folder: Path, series: dict[str, str], expected: dict[str, bool]) -> str:
    """Write a promtool test: given ``series``, one sample each 30 s, does each alert fire after 28 minutes?"""
    checks = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
            "eval_time": "28m",
            "exp_samples": [{"labels": "{}", "value": int(fires)}],
        }
        for alert, fires in expected.items()
    ]
    path = folder / "test.yml"
    test = {
        "rule_files": [str(PROMETHEUS / "alerts.yml")],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": checks,
            }
        ],
    }
    path.write_text(yaml.safe_dump(test))
    return str(path)


def test_the_metrics_that_alerts_ask_for_are_on_the_page() -> None:
    metrics = pytest.importorskip("tidegate.telemetry.metrics")
    counting = metrics.Metrics(list, int)
    config = parsed({"agents": {}, "pools": [{"name": "p", "endpoints": [{"address": "10.0.0.1:8000"}]}]})
    parts.made(Surroundings(Fleet(45.0), lambda _: None, counting, config, lambda: None))
    Certificates(counting.registry, lambda: None)
    XdsClients(DiscoveryServer(lambda _: None), counting)
    sharing.SharingFigures(counting.registry).watch(lambda: (True, "", 1, 1))
    page = counting.render().decode()
    exported = set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))
    asked = {name for rule in rules() for name in re.findall(r"\btidegate_\w+", rule["expr"])}
    assert {name.removesuffix("_bucket") for name in asked} <= exported
