"""What ships beside the wheel: the systemd unit, the manifests for Kubernetes, the dashboard for Grafana."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]

from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.health import metrics
from eyot_hub.jobs.schedule import Job, Result, Schedule
from eyot_hub.main import WITHOUT_SPARK, _parser

TOP = Path(__file__).parents[3]
UNIT = TOP / "packaging/hub/eyot-hub.service"
BOARD = TOP / "packaging/hub/eyot-hub.json"
PAGE = TOP / "docs/hub/kubernetes.md"
MANIFESTS = sorted((TOP / "packaging/kubernetes").glob("*.yaml"))
KUBERNETES = ("1.28", "1.33")
#: of systemd-analyze security, tenths; Java needs memory that is writable and executable
EXPOSURE_MAX = 20


def resources() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in MANIFESTS:
        found += [(file.name, one) for one in yaml.safe_load_all(file.read_text())]
    return found


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_what_kubernetes_takes(version: str) -> None:
    assert len(resources()) == 10
    for name, one in resources():
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            pytest.fail(f"{name}: {one['kind']} {one['metadata']['name']}: {error.message}")
    (pod,) = (one["data"]["executor.yaml"] for _, one in resources() if "executor.yaml" in one.get("data", {}))
    template = yaml.safe_load(pod)
    executor = template["spec"]["containers"][0]
    executor["image"] = "given-by-spark"
    kubernetes_validate.validate(template, version, strict=True)
    # Spark gives the argument `executor` to whatever the container runs, and the image would run eyot-hub.
    assert "KubernetesExecutorBackend" in executor["command"][-1]
    assert subprocess.run(["bash", "-n", "-c", executor["command"][-1]], check=False).returncode == 0


def test_a_mistake_in_a_manifest_is_found() -> None:
    """The validator does refuse what Kubernetes refuses."""
    (deployment,) = (one for _, one in resources() if one["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES[-1], strict=True)


def test_manifests_refer_to_what_exists() -> None:
    kinds = {(one["kind"], one["metadata"]["name"]): one for _, one in resources()}
    pod = kinds["Deployment", "eyot-hub"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in kinds
    assert f"kubectl create secret generic {volumes['secrets']['secret']['secretName']} " in PAGE.read_text()
    assert not [name for kind, name in kinds if kind == "Secret"], "apply would replace the values that were created"
    # Executors reach the driver's ports through the policies.
    policies = [one["spec"]["ingress"] for (kind, _), one in kinds.items() if kind == "NetworkPolicy"]
    let_in = {port["port"] for rules in policies for rule in rules for port in rule["ports"]}
    assert {port["port"] for port in kinds["Service", "eyot-hub-driver"]["spec"]["ports"]} <= let_in
    ports = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        (target,) = (what["port"] for what in container[probe].values() if isinstance(what, dict))
        assert target in ports
    for (kind, _), one in kinds.items():
        if kind == "Service":
            assert one["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    role = kinds["RoleBinding", "eyot-hub"]["roleRef"]
    assert (role["kind"], role["name"]) in kinds
    _parser().parse_args(container["args"])


def test_the_configuration_in_the_manifest_is_one(tmp_path: Path) -> None:
    (config,) = (one["data"]["hub.toml"] for _, one in resources() if "hub.toml" in one.get("data", {}))
    for name in re.findall(r"--from-file=(\S+)", PAGE.read_text()):
        (tmp_path / name).write_text("of-the-secret\n")
    local = config.replace("/run/secrets/eyot-hub", str(tmp_path)).replace("/var/lib/eyot-hub", str(tmp_path))
    parsed = convert(tomllib.loads(local), "manifest")
    assert parsed.nats["password"] == parsed.lake.storage_options["AWS_SECRET_ACCESS_KEY"] == "of-the-secret"
    (port,) = (
        one["spec"]["ports"] for _, one in resources() if one["kind"] == "Service" and len(one["spec"]["ports"]) == 1
    )
    assert parsed.run.address == ("0.0.0.0", port[0]["port"])


def test_the_unit_is_whole_and_hardened(tmp_path: Path) -> None:
    text = UNIT.read_text()
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    program, *arguments = start.split()
    assert program.endswith("/eyot-hub")
    _parser().parse_args(arguments)
    local = tmp_path / UNIT.name
    local.write_text(text.replace(program, str(shutil.which("true"))))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", local], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    checked = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE_MAX}", local],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    assert "Overall exposure level for eyot-hub.service" in checked.stdout + checked.stderr


def exported() -> dict[str, set[str]]:
    """The metrics of a schedule whose jobs report every gauge, and their labels."""
    gauges = {
        ("lag_messages", "stream", "S"): 1.0,
        ("oldest_seconds", "stream", "S"): 1.0,
        ("gap_sequences", "status", "missing"): 1.0,
        ("origins", "answers", "no"): 1.0,
        ("devices", "state", "silent"): 1.0,
        ("quality_violations", "rule", "r"): 1.0,
        ("expired_rows", "table", "bronze"): 1.0,
    }
    schedule = Schedule([Job("lag", 1.0, lambda: Result(gauges=gauges))])
    assert schedule.once()
    found = re.findall(r"^(eyot_hub_\w+)\{(\w+)=", metrics(schedule), re.MULTILINE)
    return {name: {label, "instance"} for name, label in found}


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    board, there = json.loads(BOARD.read_text()), exported()
    assert board["uid"] == BOARD.stem
    asked = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"\beyot_\w+", target["expr"]))
            assert names
            assert names <= there.keys(), panel["title"]
            labels = {
                *re.findall(r"(\w+)\s*[!=]=?~?\"", target["expr"]),
                *re.findall(r"{{(\w+)}}", target["legendFormat"]),
            }
            assert labels <= set().union(*(there[name] for name in names)), panel["title"]
            asked |= names
    assert asked == there.keys() - {"eyot_hub_job_running"}
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in board["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert max(x for x, _ in cells) < 24


def test_every_command_has_json_and_is_in_the_documentation() -> None:
    page = (TOP / "docs/hub/jobs.md").read_text()
    (commands,) = (action.choices for action in _parser()._actions if isinstance(action.choices, dict))
    assert set(WITHOUT_SPARK) < set(commands)
    for name, parser in commands.items():
        assert "--json" in parser.format_help(), name
        assert re.search(rf"^eyot-hub {name} +-c hub.toml", page, re.MULTILINE), name
        assert re.search(rf"^\| `{name}` \|", page, re.MULTILINE), name
