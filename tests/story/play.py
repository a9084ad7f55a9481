"""`make demo`: plays the story on screen, ends with Spark's tables, a picture and one line of truth.

Exit status 0 when every acknowledged message is on the leaf, on the hub and in the table exactly once, in order; else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from picture import draw
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from story import Story


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=52_000, help="how many readings to publish (default 52,000)")
    parser.add_argument("--window", type=int, default=256, help="publishes in flight (default 256)")
    parser.add_argument("--leaf", default="eyotd", metavar="eyotd|nats-server|PATH", help="the broker on the device")
    parser.add_argument("--hub", default="eyotd", metavar="eyotd|nats-server|PATH", help="the broker at the hub")
    parser.add_argument("--no-spark", action="store_true", help="stop at the hub's stream")
    parser.add_argument("--out", type=Path, help="folder for logs, tables and the picture (default: a new one)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console(highlight=False)
    folder = options.out or Path(tempfile.mkdtemp(prefix="eyot-demo-"))
    console.print(
        f"[bold]Eyot[/bold]: a gateway offline, a power cut, a link that returns. Everything lies in {folder}"
    )
    bars = Progress(
        TextColumn("{task.description:14}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    acked_bar = bars.add_task("acknowledged", total=options.messages)
    hub_bar = bars.add_task("on the hub", total=options.messages)

    def progress(acked: int, on_hub: int) -> None:
        bars.update(acked_bar, completed=acked)
        bars.update(hub_bar, completed=on_hub)

    begun = time.monotonic()

    def tell(text: str) -> None:
        bars.console.print(f"[dim]{time.monotonic() - begun:6.1f} s[/dim]  {text}")

    story = Story(folder, options.messages, options.leaf, options.hub, options.window, tell, progress)
    try:
        with bars:
            truth = asyncio.run(story.play())
        if not options.no_spark:
            from spark_tables import tables

            truth.places["in table"] = tables(story.hub.port, folder, console, tell)
    finally:
        story.close()
    picture = folder / "backlog.png"
    draw(story.timeline, picture)
    console.print(f"The picture of the backlog: {picture}")
    holds = truth.holds(ordered=[("on hub", "on leaf")])
    console.print(f"[bold {'green' if holds else 'red'}]{truth.line()}[/]")
    if truth.disordered("on hub", "on leaf"):
        console.print("[bold red]the hub holds the messages in another order than the leaf[/]")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
