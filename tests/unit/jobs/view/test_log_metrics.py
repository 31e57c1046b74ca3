"""Steps and metrics are read from the log lines of common training libraries."""

from __future__ import annotations

import pytest

from headway.jobs.view.log_metrics import LoggedMetrics, LogMetricsParser
from headway.jobs.view.progress import JobProgress

MEGATRON = (
    b" [2026-05-01 10:00:00] iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): "
    b"1234.5 | learning rate: 1.500E-04 | global batch size:   256 | lm loss: 6.123456E+00 | loss scale: 1.0 | grad norm: 1.234 |"
)
TITAN = (
    b"[titan] 2026-09-01 12:00:00,123 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.8901  \x1b[33mmemory: 40.5GiB(42%)  "
    b"\x1b[34mtps: 7,012  \x1b[35mmfu: 38.1%\x1b[39m"
)
TIMM = b"Train: 1 [  50/1251 (  4%)]  Loss: 6.94 (6.95)  Time: 0.301s,  850.21/s  LR: 1.000e-05  Data: 0.012 (0.034)"


def parse(*lines: bytes) -> LoggedMetrics:
    """Returns what the last line says."""
    parser = LogMetricsParser()
    found = [parser.parse(line) for line in lines][-1]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("lines", "step", "loss", "others"),
    [
        pytest.param([b" 12%|#  | 500/4000 [00:10<01:00, 9.8it/s]",
                      b"{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.12}"],
                     500, 2.31, {"grad_norm": 1.2, "learning_rate": 5e-05}, id="HF Trainer"),
        pytest.param([b"{'loss': '2.31', 'epoch': '0.12'}"], 1, 2.31, {}, id="HF Trainer 5"),
        pytest.param([b"Epoch 2:  45%|####   | 450/1000 [00:12<00:15, 35.50it/s, v_num=0, train_loss=0.512]"],
                     2450, 0.512, {}, id="Lightning"),
        pytest.param([b"iter 100: loss 4.1234, time 132.11ms, mfu 38.20%"], 100, 4.1234, {"mfu": 38.2}, id="nanoGPT"),
        pytest.param([b"step 250: train loss 2.4012, val loss 2.5101"], 250, 2.4012, {"val loss": 2.5101}, id="nanoGPT eval"),
        pytest.param([MEGATRON], 100, 6.123456, {"learning rate": 1.5e-4, "grad norm": 1.234}, id="Megatron"),
        pytest.param([TITAN], 10, 7.8901, {"tps": 7012.0, "mfu": 38.1}, id="torchtitan"),
        pytest.param([b"[epoch=1][batch=50/1000]:", b"\t Train loss/train/total: 2.3011"], 1050, 2.3011, {}, id="Composer"),
        pytest.param([b"train Epoch   0:   12%|###   | 12/100 [00:05<00:40,  2.1ba/s, loss/train/total=2.3102]"],
                     12, 2.3102, {}, id="Composer bar"),
        pytest.param([TIMM], 1301, 6.94, {"LR": 1e-5, "Data": 0.012}, id="timm"),
        pytest.param([b"train_loss=0.5 step=30"], 30, 0.5, {}, id="train_loss="),
        pytest.param([b'{"step": 12, "loss": 2.0, "lr": 1e-4, "note": "x"}'], 12, 2.0, {"lr": 1e-4}, id="JSON lines"),
        pytest.param([b"Epoch [3/10], Step [100/600], Loss: 0.1234"], 1900, 0.1234, {}, id="iter and epoch"),
        pytest.param([b"epoch 3 train_loss=0.5 val_loss=0.7"], 3, 0.5, {"val_loss": 0.7}, id="epoch"),
        pytest.param([b"loss 1.0", b"loss 0.9"], 2, 0.9, {}, id="no step"),
    ],
)  # fmt: skip
def test_lines_of_common_libraries(lines: list[bytes], step: int, loss: float, others: dict[str, float]) -> None:
    found = parse(*lines)
    assert (found.step, found.loss) == (step, loss)
    assert {name: value for name, value in found.values.items() if value != loss} == others


def test_losses_of_held_out_data_are_not_those_of_the_training() -> None:
    bar, of_evaluation = b" 50%|# | 500/1000 [00:10<01:00]", b" 30%|# | 3/10 [00:01<00:02]"
    found = parse(bar, b"{'loss': 2.0}", of_evaluation, b"{'eval_loss': 2.5, 'epoch': 1.0}")
    assert (found.step, found.loss, dict(found.values)) == (500, None, {"eval_loss": 2.5})


def test_all_metrics_of_a_log_are_kept_if_they_are_wanted() -> None:
    progress = JobProgress(log_metrics={})
    progress.add_log(b"".join(b"iter %d: loss %d.5, mfu 3%d%%\n" % (i, 9 - i, i) for i in range(4)))
    assert progress.log_metrics is not None
    assert {name: curve.points[-1] for name, curve in progress.log_metrics.items()} == {
        "loss": (3, 6.5),
        "mfu": (3, 33.0),
    }
    assert progress.more == {"mfu": 33.0}
