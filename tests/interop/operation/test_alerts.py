"""Each alert on made-up samples, by `promtool test rules`: it fires on what it is for, and on nothing that is well."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

RULES = Path(__file__).parents[3] / "packaging/prometheus/eyot.rules.yml"
DAY = 86_400
AT = 'instance="gw",job="eyot"'
SYNC = f'{AT},account="A",stream="R",peer="hub"'
LINK = f'{AT},account="A",link="hub:7422",role="leaf"'
#: Minutes of samples, one a minute.
MINUTES = 480


class Case(NamedTuple):
    """Series in promtool's notation, and whether the alert fires after `minutes`."""

    alert: str
    series: dict[str, str]
    fires: bool
    minutes: int = 60


def steady(value: float) -> str:
    return f"{value}x{MINUTES}"


def both(alert: str, metric: str, bad: str, good: str, minutes: int = 60) -> list[Case]:
    """The alert on a series that is bad, and on one that is well."""
    return [Case(alert, {metric: bad}, True, minutes), Case(alert, {metric: good}, False, minutes)]


CASES = [
    *both("EyotDown", f"up{{{AT}}}", steady(0), steady(1)),
    Case("EyotDown", {f"up{{{AT}}}": steady(0)}, False, 10),
    Case("EyotDown", {'up{instance="x",job="other"}': steady(0)}, False),
    *both("EyotRestarts", f"eyot_uptime_seconds{{{AT}}}", " ".join(["0+60x9"] * 8), f"0+60x{MINUTES}"),
    *both("EyotStoreFailing", f"eyot_store_failing{{{AT}}}", steady(1), steady(0)),
    *both("EyotStoreDamaged", f"eyot_store_damaged_streams{{{AT}}}", steady(2), steady(0)),
    Case(
        "EyotDiskAlmostFull",
        {f"eyot_store_free_bytes{{{AT}}}": steady(4), f"eyot_store_size_bytes{{{AT}}}": steady(100)},
        True,
    ),
    Case(
        "EyotDiskAlmostFull",
        {f"eyot_store_free_bytes{{{AT}}}": steady(6), f"eyot_store_size_bytes{{{AT}}}": steady(100)},
        False,
    ),
    *both("EyotMessagesRefused", f"eyot_store_refused_total{{{AT}}}", f"0+1x{MINUTES}", steady(7)),
    *both("EyotMessagesNeverArrived", f"eyot_sync_never_arrived_total{{{SYNC}}}", steady(500), steady(0)),
    *both("EyotBehind", f"eyot_sync_oldest_seconds{{{SYNC}}}", steady(4000), steady(3000)),
    # A policy holds the link: nothing is wrong.
    Case(
        "EyotBehind",
        {f"eyot_sync_oldest_seconds{{{SYNC}}}": steady(4000), f"eyot_sync_waiting{{{SYNC}}}": steady(1)},
        False,
    ),
    *both("EyotPositionUncertain", f"eyot_sync_uncertain{{{SYNC}}}", steady(1), steady(0)),
    *both("EyotLinkDown", f"eyot_link_up{{{LINK}}}", steady(0), steady(1)),
    Case("EyotLinkDown", {f"eyot_link_up{{{LINK}}}": steady(0), f"eyot_link_waiting{{{LINK}}}": steady(1)}, False),
    Case("EyotLinkDown", {f"eyot_link_up{{{LINK}}}".replace('"leaf"', '"hub"'): steady(0)}, False),
    Case(
        "EyotLinkBudgetAlmostUsed",
        {f"eyot_link_spent_bytes{{{LINK}}}": steady(95), f"eyot_link_budget_bytes{{{LINK}}}": steady(100)},
        True,
    ),
    Case(
        "EyotLinkBudgetAlmostUsed",
        {f"eyot_link_spent_bytes{{{LINK}}}": steady(85), f"eyot_link_budget_bytes{{{LINK}}}": steady(100)},
        False,
    ),
    *both("EyotSourcingFailing", f'eyot_copy_failing{{{SYNC},origin="S"}}', steady(1), steady(0)),
    # Time begins at 0 in promtool's tests.
    *both(
        "EyotCertificateExpires",
        f'eyot_certificate_expiry_timestamp_seconds{{{AT},file="c.pem"}}',
        steady(13 * DAY),
        steady(15 * DAY),
    ),
    *both(
        "EyotCredentialsExpire",
        f"eyot_credentials_expiry_timestamp_seconds{{{LINK}}}",
        steady(6 * DAY),
        steady(8 * DAY),
    ),
    *both("EyotSlowConsumers", f"eyot_slow_consumers_total{{{AT}}}", f"0+1x{MINUTES}", steady(3)),
    *both("EyotMqttDropped", f'eyot_mqtt_dropped_total{{{AT},account="A",reason="full"}}', f"0+1x{MINUTES}", steady(3)),
    *both("EyotFlashWorn", f"eyot_flash_life_used_ratio{{{AT}}}", steady(0.85), steady(0.5)),
    *both("EyotFlashEndsSoon", f"eyot_flash_lifetime_seconds{{{AT}}}", steady(300 * DAY), steady(400 * DAY), 400),
]


def fires(case: Case, folder: Path) -> bool:
    """Ask promtool; its test of the rules fails when the alert fires although none is expected."""
    expected = {"eval_time": f"{case.minutes}m", "alertname": case.alert, "exp_alerts": []}
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": [expected]}],
    }
    file = folder / "test.yml"
    file.write_text(json.dumps(document))
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: packaging/ensure-packages test"
    done = subprocess.run([program, "test", "rules", file], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return False
    assert f"alertname: {case.alert}, time: " in said, said
    # What the operator reads has all its values.
    summary = re.search(r'summary="([^"]*)"', said)
    assert summary is not None, said
    assert "<no value>" not in summary[1], said
    assert not re.search(r"  |: $|^ | $", summary[1]), f"a label is missing: {summary[1]}"
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{'bad' if case.fires else 'well'}")
def test_an_alert_fires_on_what_it_is_for(case: Case, tmp_path: Path) -> None:
    assert fires(case, tmp_path) is case.fires


def test_every_alert_has_a_case_of_either_kind() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    for kind in (True, False):
        assert {case.alert for case in CASES if case.fires is kind} == alerts
