"""The --signal option of a job is found in its script and on its command line."""

from __future__ import annotations

import pytest

from headway.slurm.signal_option import SignalRequest, requested_signal


@pytest.mark.parametrize(
    ("script", "command", "wish"),
    [
        ("#SBATCH --signal=USR1@120\n", "sbatch a.sh", SignalRequest("USR1", False, 120)),
        ("#SBATCH -N2 --signal=B:SIGUSR2\n", "", SignalRequest("USR2", True, 60)),
        ("#SBATCH --signal=USR1@120\n", "sbatch --signal=10@5 a.sh", SignalRequest("10", False, 5)),
        ("echo --signal=USR1\n", "sbatch a.sh", None),
        ('#SBATCH --signal="B:USR1@60"\n', "sbatch a.sh", SignalRequest("USR1", True, 60)),
        ("#SBATCH --signal='USR1@60' # soon\n", "", SignalRequest("USR1", False, 60)),
        ("#SBATCH --signal=USR1\n#SBATCH --signal=TERM\n", "", SignalRequest("TERM", False, 60)),
        ("#SBATCH --time=1 # --signal=USR1\n", "", None),
        ("#SBATCH -N1\nsrun x\n#SBATCH --signal=USR1\n", "", None),
        ("", "sbatch -N 2 a.sh --signal=USR1@9", None),
        ("", "sbatch --wrap=sleep 60 --signal=USR1@9", SignalRequest("USR1", False, 9)),
        (f"#SBATCH --signal=USR1@{'9' * 5000}\n", "sbatch a.sh", None),
        (f"#SBATCH --time=1 # --signal=USR1@{'9' * 5000}\n", f"sbatch a.sh --signal=USR1@{'9' * 5000}", None),
    ],
)
def test_parses_signal_option_of_job_script_and_command(script: str, command: str, wish: SignalRequest | None) -> None:
    assert requested_signal(script, command) == wish
