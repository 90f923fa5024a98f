"""The health of a stream as a picture: state, watermark and late rows over the batches. Needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.errors import OdiError
from odi_assets.streaming.checkpoints.health import Health, all_labels
from odi_assets.util.extras import install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STATE, _TIME, _LATE, _TAKEN = "#1f6feb", "#d29922", "#cf222e", "#57606a"


def save_picture(health: Health, file: str | Path) -> Path:
    """Write the picture as PNG, and return where it is.

    Raises:
        OdiError: matplotlib is not installed, or the file cannot be written.
    """
    place = Path(file)
    drawn = draw(health)
    try:
        place.write_bytes(drawn)
    except OSError as error:
        raise OdiError(
            f"{place} cannot be written: {error.strerror}", fix="name a file in a folder that exists", path=str(place)
        ) from error
    return place


def draw(health: Health) -> bytes:
    """The picture as PNG: a row for the rows in the state, one for the watermark and the oldest event time in the
    state, and one for rows that came too late, or the time that batches took where that is not known.

    Raises:
        OdiError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OdiError(
            "a picture needs matplotlib, which is not installed", fix=f"run: {install_command('plots')}"
        ) from error
    # No pyplot: it keeps figures and a back end for the whole process.
    figure = Figure(figsize=(9, 7), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    figure.suptitle(_title(health), fontsize=10, color="#24292f")
    _draw_state(top, health)
    _draw_times(middle, health)
    _draw_late(bottom, health)
    bottom.set_xlabel("batch")
    bottom.xaxis.get_major_locator().set_params(integer=True)
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _title(health: Health) -> str:
    watermark = f"watermark {health.watermark:%Y-%m-%d %H:%M:%S}" if health.watermark else "no watermark yet"
    last = health.batches[-1].batch_id if health.batches else None
    return f"query {health.query_id}: batch {last}, {watermark} UTC, {health.files:,} files in the checkpoint"


def _draw_state(axes: Axes, health: Health) -> None:
    for number, label in enumerate(all_labels(health.batches)):
        _line(axes, [(one.batch_id, one.rows.get(label)) for one in health.batches], label, f"C{number}")
    _finish(axes, "rows in the state", bool(axes.lines))
    axes.set_ylim(bottom=0)


def _draw_times(axes: Axes, health: Health) -> None:
    _line(axes, [(one.batch_id, one.watermark) for one in health.batches], "watermark", _TIME)
    _line(axes, [(one.batch_id, one.oldest) for one in health.batches], "oldest event time in the state", _STATE)
    _finish(axes, "event time (UTC)", bool(axes.lines))


def _draw_late(axes: Axes, health: Health) -> None:
    dropped: list[tuple[int, float]] = [
        (batch.batch_id, batch.rows_dropped) for batch in health.batches if batch.rows_dropped is not None
    ]
    removed = [(batch.batch_id, batch.rows_removed) for batch in health.batches if batch.rows_removed is not None]
    if dropped:
        axes.bar(*_columns(removed), color=_TAKEN, width=0.6, label="removed by the watermark")
        axes.bar(*_columns(dropped), color=_LATE, width=0.35, label="dropped as late")
        _finish(axes, "rows", True)
        return
    took = [(batch.batch_id, batch.seconds) for batch in health.batches if batch.seconds is not None]
    axes.bar(*_columns(took), color=_TAKEN, width=0.6)
    _finish(axes, "seconds a batch took", False)


def _columns(points: Sequence[tuple[int, Any]]) -> tuple[list[int], list[Any]]:
    return [batch for batch, _ in points], [value for _, value in points]


def _line(axes: Axes, points: Sequence[tuple[int, Any]], label: str, color: str) -> None:
    known = [(batch, value) for batch, value in points if value is not None]
    if known:
        axes.plot(*_columns(known), label=label, color=color, marker=".", drawstyle="steps-post")


def _finish(axes: Axes, name: str, legend: bool) -> None:
    axes.set_ylabel(name, fontsize=9)
    axes.grid(visible=True, color="#d0d7de", linewidth=0.6)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(fontsize=8, frameon=False, loc="upper left")
