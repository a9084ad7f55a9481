"""The picture of the story: backlog over time, with the moments that made it."""

from __future__ import annotations

from pathlib import Path

from observe import Timeline


def draw(timeline: Timeline, target: Path) -> None:
    """Writes a PNG with what is on the leaf, on the hub and between them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 5), dpi=120)
    times = [sample.at_s for sample in timeline.samples]
    axes.fill_between(
        times, [sample.backlog for sample in timeline.samples], color="#d9822b", alpha=0.45, label="backlog"
    )
    axes.plot(times, [sample.on_leaf for sample in timeline.samples], color="#1f5a7a", label="on the leaf")
    axes.plot(times, [sample.on_hub for sample in timeline.samples], color="#3a8f5c", label="on the hub")
    top = max([sample.on_leaf for sample in timeline.samples], default=1) or 1
    middle = (times[-1] if times else 0) * 0.7
    for number, (at, what) in enumerate(timeline.moments):
        side = "left" if at < middle else "right"
        axes.axvline(at, color="#555555", linewidth=0.8, linestyle=":")
        axes.annotate(
            what,
            (at, top * (1.0 - 0.06 * (number % 4))),
            fontsize=8,
            rotation=0,
            xytext=(3 if side == "left" else -3, 0),
            ha=side,
            textcoords="offset points",
        )
    axes.set_xlabel("seconds since the story began")
    axes.set_ylabel("messages")
    axes.set_ylim(0, top * 1.08)
    axes.set_title("Eyot: backlog of a leaf that was offline and lost power")
    axes.legend(loc="center left")
    axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(target)
    pyplot.close(figure)
