"""The script of the first training runs, and prints a loss that falls."""

from __future__ import annotations

from headway.web.views.submit_page.first_training import first_training


def test_the_script_trains() -> None:
    program = first_training(8).partition("<<'PYTHON'\n")[2].partition("PYTHON\n")[0]
    said: list[str] = []
    exec(program.replace("time.sleep(1)", ""), {"print": said.append})
    losses = [float(line.split()[-1]) for line in said if line.startswith("step")]
    assert losses[0] > 10 * losses[-1]
    assert len(losses) == 60


def test_a_cluster_without_gpus_is_asked_for_none() -> None:
    assert "gpus" not in first_training(0)
    assert "--gpus-per-node=1\n" in first_training(8)
