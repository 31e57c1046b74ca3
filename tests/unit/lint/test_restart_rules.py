"""Signals that nothing handles and requeues that lose work are found."""

from __future__ import annotations

import pytest

from tests.support.batch_scripts import finding_of, fixed, found, script


def test_signal_to_a_script_without_handler() -> None:
    text = script("#SBATCH --signal=B:USR1@90", "srun python train.py")
    assert found(text)["signal-without-handler"] == 3
    handled = script("#SBATCH --signal=B:USR1@90", "trap 'touch stop' SIGUSR1", "srun python train.py &", "wait")
    assert not found(handled).keys() & {"signal-without-handler", "handler-waits", "no-wait"}


def test_signal_without_b_reaches_steps_only() -> None:
    text = script("#SBATCH --signal=USR1@90", "trap save USR1", "python train.py")
    assert found(text)["signal-to-no-step"] == 3
    assert "#SBATCH --signal=B:USR1@90" in fixed("signal-to-no-step", text)
    assert "signal-to-no-step" not in found(script("#SBATCH --signal=USR1@90", "srun python train.py"))


def test_handler_of_a_script_in_the_foreground_runs_too_late() -> None:
    text = script("#SBATCH --signal=B:TERM@60", "trap save TERM", "srun python \\", "  train.py")
    assert found(text)["handler-waits"] == 5
    assert fixed("handler-waits", text) == script(
        "#SBATCH --signal=B:TERM@60", "trap save TERM", "srun python \\", "  train.py &", "wait $!"
    )
    told = script("#SBATCH --signal=B:USR1@60", "trap save USR1", "bash train.sh  # long", "echo done")
    assert found(told)["handler-waits"] == 5
    assert fixed("handler-waits", told) == told


@pytest.mark.parametrize(
    "lines",
    [
        ("source ./handlers.sh", "python train.py"),
        ("exec python train.py",),
        ("trap save 10", "python train.py &", "wait $!"),
        ("trap save USR1", "for part in 1 2; do", "  python train.py $part", "done"),
    ],
)
def test_signal_that_may_be_handled_in_time(lines: tuple[str, ...]) -> None:
    text = script("#SBATCH --signal=B:USR1@60", *lines)
    assert not found(text).keys() & {"signal-without-handler", "handler-waits"}


def test_handler_of_a_signal_that_goes_to_the_steps() -> None:
    text = script("#SBATCH --signal=USR1@60", "trap save USR1", "srun python train.py &", "wait")
    assert finding_of("signal-to-no-step", text).message == "The handler of USR1 in line 4 never runs."
    assert fixed("signal-to-no-step", text) == text


@pytest.mark.parametrize(
    "command", ["python train.py --resume auto", "python train.py --ckpt_dir c", "python -m headway_train x"]
)
def test_requeue_of_a_program_that_continues(command: str) -> None:
    assert "requeue-without-checkpoint" not in found(script("#SBATCH --requeue", command))


def test_requeue_of_a_program_that_begins_again() -> None:
    text = script("#SBATCH --requeue", "#SBATCH --output=a.out", "python train.py")
    assert found(text) == {"requeue-without-checkpoint": 3, "log-truncated": 3}
    assert "#SBATCH --open-mode=append\n" in fixed("log-truncated", text)
