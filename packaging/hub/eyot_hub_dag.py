"""The hub's jobs for Airflow 3, as an alternative to `eyot-hub run`. Copy to the folder of DAGs.

Airflow's workers have the wheel with its extra `hub` in /opt/eyot-hub, and the configuration in /etc/eyot-hub. One run at
a time: a round continues from the positions in the tables, so a run that failed needs no repair.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

HUB = "/opt/eyot-hub/bin/eyot-hub"
CONFIG = "/etc/eyot-hub/hub.toml"
AGAIN = {"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True}


def job(name: str, arguments: str = "") -> BashOperator:
    """Return a task that runs one command of the hub; its output is one JSON object a line."""
    command = f"exec {HUB} {name} -c {CONFIG} --json --log-format json {arguments}".strip()
    return BashOperator(task_id=name, bash_command=command)


with DAG(
    "eyot_hub",
    description="Streams into tables: bronze, silver, gold, gaps, quality, report",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args=AGAIN,
    tags=["eyot"],
) as rounds:
    # One after the other: report writes the tables of gaps and quality, too. The last two end with status 1 when something is
    # missing or a rule fails, and the run shows it.
    made = job("ingest", "--once") >> job("aggregate", "--once") >> job("report", "-o /var/lib/eyot-hub/page.html")
    made >> [job("gaps", "--check"), job("quality")]

with DAG(
    "eyot_hub_maintenance",
    description="Small files joined, old files and rows removed",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args=AGAIN,
    tags=["eyot"],
) as maintenance:
    job("maintain", "--once")
