"""`make hub-dag`: Airflow loads the example of DAGs, and the hub's parser takes each of its commands."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import venv
from pathlib import Path

from eyot_hub.main import _parser

TOP = Path(__file__).parents[3]
DAGS = TOP / "packaging/hub/eyot_hub_dag.py"
AIRFLOW = TOP / "build/airflow"
ORDER = {
    "eyot_hub/ingest": [],
    "eyot_hub/aggregate": ["ingest"],
    "eyot_hub/report": ["aggregate"],
    "eyot_hub/gaps": ["report"],
    "eyot_hub/quality": ["report"],
    "eyot_hub_maintenance/maintain": [],
}


def main() -> int:
    python = AIRFLOW / "bin/python"
    if not python.exists():
        venv.create(AIRFLOW, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "apache-airflow>=3"], check=True)
    done = subprocess.run(
        [python, TOP / "tests/support/hub/check_dag.py", DAGS], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        return done.returncode
    tasks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {f"{task['dag']}/{task['task']}": task["after"] for task in tasks}
    if found != ORDER:
        print(f"the order is {found}, and not {ORDER}", file=sys.stderr)
        return 1
    for task in tasks:
        _exec, _program, *arguments = shlex.split(task["command"])
        _parser().parse_args(arguments)  # ends the program with a message for a mistake
    print(f"{len(tasks)} tasks in {DAGS.relative_to(TOP)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
