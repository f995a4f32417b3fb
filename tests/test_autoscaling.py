"""What autoscalers are told to ask for: that it is exported, and asked for as it should be."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.runtime.test_saturation import config, watched
from tidegate.scheduling.saturation import EMPTY

ROOT = Path(__file__).resolve().parent.parent
SCALED = yaml.safe_load((ROOT / "deploy/keda/scaledobject.yaml").read_text(encoding="utf-8"))["spec"]
PAGE = (ROOT / "docs/autoscaling.md").read_text(encoding="utf-8")


def exported() -> set[str]:
    metrics, _ = watched(config(), EMPTY)
    return set(re.findall(r"^# TYPE (\S+) ", metrics.render().decode(), re.MULTILINE))


def triggers() -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = (trigger for trigger in SCALED["triggers"])
    return first, second


def test_what_autoscalers_ask_for_is_exported() -> None:
    asked = set(re.findall(r"\btidegate_\w+", "".join(one["metadata"]["query"] for one in triggers()) + PAGE))
    assert len(asked) == 5
    assert asked <= exported()


def test_the_figure_says_how_many_and_requests_wake() -> None:
    how_many, waking = triggers()
    assert how_many["metricType"] == "Value", "a figure of the pool, not of a replica"
    assert 0.5 < float(how_many["metadata"]["threshold"]) < 1.0
    assert float(how_many["metadata"]["activationThreshold"]) > 100, "an idle pool must be allowed to end"
    assert float(waking["metadata"]["activationThreshold"]) == 0.0
    assert SCALED["minReplicaCount"] == 0


def test_the_page_has_an_autoscaler_without_keda_too() -> None:
    (example,) = (text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "autoscaling/v2" in text)
    (metric,) = yaml.safe_load(example)["spec"]["metrics"]
    assert metric["external"]["metric"]["selector"]["matchLabels"]["part"] == "total"
    assert metric["external"]["target"] == {"type": "Value", "value": "700m"}
