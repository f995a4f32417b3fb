import json
from pathlib import Path

import pytest

from bench import envoy, soak


def there_is_an_envoy() -> bool:
    try:
        return bool(envoy.binary())
    except FileNotFoundError:
        return False


def test_a_slope_is_per_ten_thousand_requests() -> None:
    assert soak.slope([1.0, 3.0, 5.0], 10_000) == pytest.approx(2.0)
    assert soak.slope([1.0, 3.0, 5.0], 40_000) == pytest.approx(0.5)
    assert soak.slope([7.0], 1_000) == 0.0


def test_fields_are_read_whatever_stands_beside_them() -> None:
    text = "# HELP tidegate_tasks Tasks.\ntidegate_tasks 7.0\nRss:      1024 kB\nName: x\n"
    assert soak._fields_of(text, " ")["tidegate_tasks"] == 7.0
    assert soak._fields_of(text, ":")["Rss"] == 1024.0


@pytest.mark.skipif(not there_is_an_envoy(), reason="no Envoy on this machine")
def test_a_short_soak_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    options = ["--requests", "900", "--every", "300", "--leave-every", "3", "--transports", "h2", "--json", str(out)]
    assert soak.main(options) == 0
    found = json.loads(out.read_text())["h2"]
    assert len(found["samples"]) == 4
    assert found["left"] > 0
    assert (found["not_answered"], found["last"]["reservations"], found["last"]["streams"]) == (0, 0, 0)
    assert "reservations left" in capsys.readouterr().out
