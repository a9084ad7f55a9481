"""How a check ends: with lines, measured values and an exit status, in the forms of the `nats` tool."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.terminal.show import print_json, print_line, print_table
from eyot_cli.values.paths import FilePath
from eyot_wire.quoting import printable

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("nagios", "json", "prometheus", "text")
#: Exit status by state, as Nagios defines them.
_CODES = {"OK": 0, "WARNING": 1, "CRITICAL": 2}


@dataclass(frozen=True)
class Value:
    """A measured value with its thresholds; 0: none."""

    name: str
    value: float
    warn: float = 0
    crit: float = 0
    unit: str = ""
    help: str = ""

    def __str__(self) -> str:
        digits = 4 if self.unit == "s" else 0
        text = f"{self.name}={self.value:.{digits}f}{self.unit}"
        if self.warn or self.crit:
            text += f";{self.warn:.{digits}f}" if self.warn else ";"
        return text + (f";{self.crit:.{digits}f}" if self.crit else "")


@dataclass
class Result:
    """What a check has found so far."""

    check: str
    name: str
    criticals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    oks: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    @property
    def state(self) -> str:
        return "CRITICAL" if self.criticals else "WARNING" if self.warnings else "OK"

    def note(self, text: str, *, crit: bool = False, warn: bool = False) -> None:
        """Note a line as critical, as a warning, or as good."""
        (self.criticals if crit else self.warnings if warn else self.oks).append(text)

    def ok_if_good(self, text: str) -> None:
        """Note a good line if nothing is wrong."""
        if self.state == "OK":
            self.oks.append(text)

    def measure(
        self, name: str, value: float, warn: float = 0, crit: float = 0, unit: str = "", help: str = ""
    ) -> None:
        """Note a measured value."""
        self.values.append(Value(name, value, warn, crit, unit, help))

    def limit(self, value: float, text: str, *, warn: float | None, crit: float | None) -> None:
        """Note whether a value is at its thresholds; with crit below warn, low values are bad."""
        if warn is None and crit is None:
            return
        low = crit is not None and warn is not None and crit < warn

        def beyond(threshold: float | None) -> bool:
            return threshold is not None and (value <= threshold if low else value >= threshold)

        self.note(text, crit=beyond(crit), warn=beyond(warn))

    def rendered(self, kind: str, namespace: str) -> str:
        """Return the output in a format."""
        if kind == "json":
            return msgspec.json.format(msgspec.json.encode(self.told()), indent=2).decode()
        if kind == "prometheus":
            return self._metrics(namespace)
        lines = [f"Crit:{each}" for each in self.criticals] + [f"Warn:{each}" for each in self.warnings]
        # A line of Nagios is one line, whatever names of streams and servers hold.
        text = " ".join([self.state, self.name, *lines, *(f"OK:{each}" for each in self.oks)])
        return printable(text + (" | " + " ".join(map(str, self.values)) if self.values else ""))

    def told(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        told: dict[str, Any] = {"status": self.state, "check_suite": self.check, "check_name": self.name}
        lines = {"warning": self.warnings, "critical": self.criticals, "ok": self.oks}
        values = [
            {"name": each.name, "value": each.value, "warning": each.warn, "critical": each.crit}
            | ({"unit": each.unit} if each.unit else {})
            for each in self.values
        ]
        return told | {name: each for name, each in lines.items() if each} | {"perf_data": values}

    def _metrics(self, namespace: str) -> str:
        item = self.name.replace('"', ".").replace("\\", ".").replace("\n", " ")
        state = f'item="{item}",status="{self.state}"'
        found = [(each.name, each.help, f'item="{item}"', each.value) for each in self.values]
        found.append(("status_code", f"Nagios compatible status code for {self.check}", state, _CODES[self.state]))
        lines = []
        for name, help, labels, value in sorted(found):
            metric = re.sub(r"\W", "_", "_".join(filter(None, (namespace, self.check, name))))
            about = help or f"Data about the check {self.check}"
            lines += [f"# HELP {metric} {about}", f"# TYPE {metric} gauge", f"{metric}{{{labels}}} {value:g}"]
        return "\n".join(lines)


class _Form:
    """What the options of all checks say."""

    def __init__(self, kind: str | None, namespace: str | None, file: Path | None, above: _Form | None) -> None:
        self.kind: str | None = kind or (above.kind if above else None)
        self.namespace: str | None = namespace or (above.namespace if above else None)
        self.file: Path | None = file or (above.file if above else None)


_FORM = "eyot_cli.server.form"


def form_options(command: F) -> F:
    """Add the options of all checks; they may stand before the name of the check, too."""
    for option in (
        click.option("--outfile", type=FilePath(dir_okay=False), metavar="FILE", help="write it there"),
        click.option(
            "--namespace", metavar="NAME", show_default="nats_server_check", help="of the metrics of Prometheus"
        ),
        click.option("--format", "kind", type=click.Choice(FORMATS), show_default="nagios", help="form of the output"),
    ):
        command = option(command)
    return command


def take_form(context: click.Context, given: dict[str, Any]) -> None:
    """Keep what the options of this command say, over those of the group."""
    above = context.meta.get(_FORM)
    context.meta[_FORM] = _Form(given.pop("kind"), given.pop("namespace"), given.pop("outfile"), above)


def run_check(check: str, name: str, given: dict[str, Any], action: Callable[[Target, Result], None]) -> None:
    """Run a check and end the command with its exit status; what fails is critical."""
    context = click.get_current_context()
    take_form(context, given)
    form, target, result = context.meta[_FORM], context.obj, Result(check, name)
    try:
        action(target, result)
    except Failure as failure:
        result.note(failure.lines[0], crit=True)
    kind = form.kind or ("json" if target.as_json else "nagios")
    text = result.rendered(kind, form.namespace or "nats_server_check")
    if form.file is not None:
        write_private(form.file, f"{text}\n".encode())
    elif kind == "text":
        _print_text(result)
    elif kind == "json":
        print_json(result.told())
    else:
        for each in text.split("\n"):
            print_line(each)
    raise click.exceptions.Exit(0 if kind == "prometheus" else _CODES[result.state])


def _print_text(result: Result) -> None:
    print_line(f"{result.name}: {result.state}")
    rows = [("Critical", each) for each in result.criticals] + [("Warning", each) for each in result.warnings]
    print_table("", ("Status", "Message"), [*rows, *(("OK", each) for each in result.oks)], "none")
    values = [
        (
            each.name,
            f"{each.value:g}",
            each.unit,
            f"{each.crit:g}" if each.crit else "",
            f"{each.warn:g}" if each.warn else "",
        )
        for each in result.values
    ]
    print_table("", ("Metric", ">Value", "Unit", ">Critical", ">Warning"), values, "none")
