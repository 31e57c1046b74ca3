"""How far from the truth a predicted throughput may be, and why."""

from __future__ import annotations

from headway.sizing.training_run import TrainingRun

KNOWN_ERROR = 0.10  # nine of ten held-out rows of the published runs are nearer
_MOST = 0.5


def expected_error(run: TrainingRun) -> tuple[float, tuple[str, ...]]:
    """Returns the half width of the band as a share of the throughput, and what is outside the published runs, which are dense
    models in bf16 on A100 and H100."""
    error, reasons = KNOWN_ERROR, []
    for added, outside, reason in (
        (0.10, run.gpu.name not in ("a100", "a100-40", "h100", "h200"), f"no published run on {run.gpu.name}"),
        (0.05, run.gpu.name == "h200", "no published run on h200; its H100 with more memory bandwidth is assumed"),
        (0.05, not run.gpu.measured, f"no measured matrix product on {run.gpu.name}"),
        (0.10, run.precision in ("fp8", "fp4"), f"no published run in {run.precision}"),
        (0.10, run.shape.experts > 0, "no published run of a mixture of experts"),
        (0.05, run.layout.context > 1, "no published run with context parallelism"),
        (0.05, run.sequence > 65536, "no published run with sequences above 65,536 tokens"),
        (0.05, run.gpus > 3072, "no published run on more than 3,072 GPUs"),
        (
            0.03,
            run.shape.gated or run.shape.kv_heads < run.shape.heads,
            "no published run with SwiGLU or grouped queries",
        ),
        (
            0.05,
            run.attention in ("flash2", "flash3"),
            "attention's speed is taken from papers, not from published runs",
        ),
    ):
        if outside:
            error += added
            reasons.append(reason)
    return min(error, _MOST), tuple(reasons)
