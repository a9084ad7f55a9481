"""`make bench`: Eyot beside other brokers in the same run, alternating; prints tables, writes docs/measured.md.

BENCH=core|durable|leaf|idle|growth|weak|mqtt: one group of rows. `--only PEER` measures one broker, for profiling.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import core_rows
import durable_rows
import growth_rows
import idle_rows
import leaf_rows
import mqtt_rows
import weak_rows
from page import write_section
from peers import OURS, version
from rich.console import Console
from table import conditions, markdown

from support.servers.newer_nats_server import VERSION, binary
from support.servers.server_process import executable

GROUPS: dict[str, ModuleType] = {
    "core": core_rows,
    "durable": durable_rows,
    "leaf": leaf_rows,
    "idle": idle_rows,
    "growth": growth_rows,
    "weak": weak_rows,
}
console = Console(highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="measures Eyot beside other brokers in the same run")
    parser.add_argument("--rounds", type=int, default=0, help="of each group; 0: what is right for it")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all message counts")
    parser.add_argument("--write", type=Path, default=HERE.parents[1] / "docs" / "measured.md")
    parser.add_argument("group", nargs="?", choices=(*GROUPS, "mqtt"), help="measure only these rows; default: all")
    options = parser.parse_args()
    for name, group in GROUPS.items():
        if options.group in (None, name):
            _group(name, group, options)
    if options.group in (None, "mqtt"):
        _mqtt(options)


def _group(name: str, group: ModuleType, options: argparse.Namespace) -> None:
    rounds = options.rounds or group.ROUNDS
    rows = group.measure(options.scale, rounds, console.print, group.PEERS)
    if not rows:
        return
    table = markdown(rows, OURS, group.PEERS)
    console.print(table, soft_wrap=True)
    versions = {peer: version(peer) for peer in (OURS, *group.PEERS)}
    text = f"Written by `make bench BENCH={name}`. {group.HOW}\n\n{conditions(rounds, versions)}"
    write_section(options.write, group.TITLE, f"{text}\n{table}")
    console.print(f"written to {options.write}")


def _mosquitto() -> str:
    said = subprocess.run([executable("mosquitto"), "-h"], capture_output=True, text=True, check=False).stdout
    return said.partition("\n")[0].strip()


def _mqtt(options: argparse.Namespace) -> None:
    rounds = options.rounds or mqtt_rows.ROUNDS
    table = markdown(mqtt_rows.MqttBench(options.scale).run(rounds, console.print), OURS, mqtt_rows.PEERS)
    console.print(table, soft_wrap=True)
    newer = subprocess.run([binary(VERSION), "-v"], capture_output=True, text=True, check=True).stdout.strip()
    versions = {OURS: version(OURS), mqtt_rows.MOSQUITTO: _mosquitto(), mqtt_rows.NATS: newer}
    text = f"Written by `make bench BENCH=mqtt`. {mqtt_rows.HOW}\n\n{conditions(rounds, versions)}"
    write_section(options.write, "MQTT beside mosquitto and nats-server", f"{text}\n{table}")
    console.print(f"written to {options.write}")


if __name__ == "__main__":
    main()
