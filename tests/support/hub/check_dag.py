"""Loads a file of DAGs with Airflow as its scheduler does: no import error, no cycle, and commands that the hub's parser takes.

`check_dag.py FILE`, in an environment with Airflow. Prints the tasks of each DAG, one JSON object a line, for `dag.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path


def main(file: str) -> int:
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
        }
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(dag_folder=str(Path(file).resolve()))
    for where, error in bag.import_errors.items():
        print(f"{where}: {error}", file=sys.stderr)
    for name, dag in sorted(bag.dags.items()):
        for task in dag.topological_sort():
            print(
                json.dumps(
                    {
                        "dag": name,
                        "task": task.task_id,
                        "command": task.bash_command,
                        "after": sorted(task.upstream_task_ids),
                    }
                )
            )
    return 1 if bag.import_errors or not bag.dags else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
