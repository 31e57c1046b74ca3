"""The data of the chart that shows a job's loss. Pure."""

from __future__ import annotations

from headway.schemas.jobs import ProgressOut


def loss_chart(job: int, progress: ProgressOut | None, hue: int = 0) -> dict[str, object]:
    """Returns the data for loss_chart.js. `hue` is the number of the line's colour."""
    points = progress.series if progress else []
    return {"job": job, "hue": hue, "steps": [step for step, _ in points], "loss": [loss for _, loss in points]}
