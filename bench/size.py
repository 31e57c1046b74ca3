"""Measures the error of `headway size`: published runs that the fit did not see, by rows and by source. Prints medians of the
absolute relative error of tokens per second and GPU, and how many published runs fit by the predicted memory."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from headway.sizing.memory import training_memory
from headway.sizing.run_rows import published_runs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from fit_step_time import FOLDS, errors, errors_by_rows, errors_by_source, fit, median_size


def main() -> None:
    start = time.perf_counter()
    runs = published_runs()
    own = errors(runs, fit(runs))
    print(f"{len(runs)} runs; the fit to all of them: median {median_size(own):.1%}")
    by_rows = errors_by_rows(runs)
    tenths = statistics.quantiles([abs(error) for error in by_rows], n=10)
    print(f"by rows ({FOLDS} folds): median {median_size(by_rows):.1%}, nine of ten below {tenths[8]:.1%}")
    by_source = errors_by_source(runs)
    for source, found in by_source.items():
        middle, mean = median_size(found), statistics.fmean(found)
        print(f"without {source}: median {middle:.1%} of its {len(found)} rows, mean {mean:+.1%}")
    together = [error for found in by_source.values() for error in found]
    print(f"by source: median of rows {median_size(together):.1%}, of sources "
          f"{statistics.median(median_size(found) for found in by_source.values()):.1%}")  # fmt: skip
    shares = [training_memory(run.run).total / run.run.gpu.memory_bytes for run in runs]
    print(
        f"memory: {sum(share <= 1 for share in shares)} of {len(runs)} published runs fit; the largest {max(shares):.0%}"
    )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
