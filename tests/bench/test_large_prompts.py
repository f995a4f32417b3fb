import json
from pathlib import Path

import pytest

from bench import envoy, large_prompts


def there_is_an_envoy() -> bool:
    try:
        return bool(envoy.binary())
    except FileNotFoundError:
        return False


def test_the_table_gives_the_medians_and_their_ratio() -> None:
    rounds = [
        {"alone_p50_ms": 1.0, "alone_p99_ms": p99, "beside_p50_ms": 2.0, "beside_p99_ms": 3.0, "not_answered": 1.0}
        for p99 in (2.0, 9.0, 1.0)
    ]
    head, row = large_prompts.table({"h2": rounds}).splitlines()
    assert head.endswith("not 200")
    assert row.split() == ["h2", "1.00", "2.00", "2.00", "3.00", "1.50", "3"]


@pytest.mark.skipif(not there_is_an_envoy(), reason="no Envoy on this machine")
def test_plain_envoy_is_measured_alone_and_beside_large_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    options = ["--seconds", "0.3", "--rounds", "1", "--sides", "plain", "--json", str(out)]
    assert large_prompts.main(options) == 0
    (found,) = json.loads(out.read_text())["plain"]
    assert found["not_answered"] == 0
    assert 0 < found["alone_p50_ms"] <= found["alone_p99_ms"]
    assert found["beside_p99_ms"] > 0
    assert "plain" in capsys.readouterr().out
