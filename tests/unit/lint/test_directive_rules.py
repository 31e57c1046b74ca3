"""#SBATCH lines that sbatch does not read or does not take are found with their line, and corrected."""

from __future__ import annotations

import pytest

from headway.lint.rules import lint_script
from tests.support.batch_scripts import finding_of, fixed, found, script


def test_directive_after_the_first_command_moves_up() -> None:
    text = script("#SBATCH --nodes=2", "cd /scratch", "# comment", "#SBATCH --gpus-per-node=8", "srun hostname")
    assert found(text)["late-directive"] == 6
    assert fixed("late-directive", text) == script(
        "#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", "cd /scratch", "# comment", "srun hostname"
    )


def test_two_late_directives_keep_their_order() -> None:
    text = "#!/bin/bash\ncd /x\n#SBATCH -N 2\n#SBATCH -t 5\n"
    assert fixed("late-directive", text) == "#!/bin/bash\n#SBATCH -N 2\n#SBATCH -t 5\ncd /x\n"


def test_script_that_is_written_by_the_script_has_directives_of_its_own() -> None:
    inner = ("cat > inner.sbatch <<'EOF'", "#!/bin/bash", "#SBATCH --nodes=1", "EOF", "sbatch inner.sbatch")
    assert "late-directive" not in found(script(*inner))
    assert found(script(*inner, "#SBATCH --nodes=2"))["late-directive"] == 8


def test_text_of_a_quoted_word_is_no_late_directive() -> None:
    text = script("echo '#!/bin/bash", "#SBATCH --nodes=1", "' > inner.sbatch", "sbatch inner.sbatch")
    assert "late-directive" not in found(text)


def test_script_that_writes_and_submits_others_has_no_directives() -> None:
    assert "late-directive" not in found("#!/bin/bash\nf() { :; }\n#SBATCH --nodes=1\nsbatch inner.sbatch\n")


def test_of_a_python_program_only_the_directives_are_read() -> None:
    text = '#!/usr/bin/env python3\n#SBATCH --time=ten\nimport os\n"""\n#SBATCH -N2\n"""\nMASTER_PORT=29500\n'
    assert found(text) == {"invalid-value": 2}


def test_windows_line_ends_are_removed() -> None:
    text = script("srun hostname").replace("\n", "\r\n")
    assert finding_of("dos-line-ends", text).level == "error"
    assert fixed("dos-line-ends", text) == script("srun hostname")


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("#SBATCH -N1\nhostname\n", "#!/bin/bash\n#SBATCH -N1\nhostname\n"),
        ("\n\n#!/bin/sh\nhostname\n", "#!/bin/sh\nhostname\n"),
    ],
)
def test_script_without_interpreter_gets_one(text: str, better: str) -> None:
    assert finding_of("no-interpreter", text).level == "error"
    assert fixed("no-interpreter", text) == better


def test_empty_script_is_one_error() -> None:
    assert [one.rule for one in lint_script("\n \n")] == ["empty-script"]


@pytest.mark.parametrize(
    ("line", "level", "better"),
    [
        (" #SBATCH --mem=1G", "warning", "#SBATCH --mem=1G"),
        ("#sbatch --mem=1G", "warning", "#SBATCH --mem=1G"),
        ("#SBTACH --mem=1G", "warning", "#SBATCH --mem=1G"),
        ("# SBATCH --mem=1G", "note", "# SBATCH --mem=1G"),  # often switched off on purpose
    ],
)
def test_line_that_only_looks_like_a_directive(line: str, level: str, better: str) -> None:
    finding = finding_of("not-a-directive", script(line))
    assert (finding.line, finding.level) == (3, level)
    assert fixed("not-a-directive", script(line)) == script(better)


@pytest.mark.parametrize(
    "line",
    [
        "##SBATCH --mem=1G", "# the batch -N job", "#SBATCH --mem=1G", "# search --all", "#   sbatch -N 2 train.sbatch",
        "# sbatch --nodes=4", "#sbatch --nodes=4 train.sbatch",
    ],
)  # fmt: skip
def test_comments_and_directives_are_not_taken_for_mistakes(line: str) -> None:
    assert "not-a-directive" not in found(script(line))


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("#SBATCH --time=tomorrow", "invalid-value"),
        ("#SBATCH --nodes=two", "invalid-value"),
        ("#SBATCH --mem=lots", "invalid-value"),
        ("#SBATCH --ntasks", "missing-value"),
        ("#SBATCH --gpus-per-nodes=8", "unknown-option"),
        ("#SBATCH --mem=64 GB", "stray-word"),
        ("#SBATCH --mem=1G --mem-per-cpu=1G", "memory-twice"),
    ],
)
def test_values_and_options_that_sbatch_refuses(line: str, rule: str) -> None:
    assert found(script(line))[rule] == 3


@pytest.mark.parametrize(
    "value",
    [
        "time=1-0",
        "time=90",
        "time=1:30:00",
        "time=2-12:30",
        "time=UNLIMITED",
        "nodes=2-4",
        "nodes=1k",
        "mem=0",
        "mem=64G",
        "mem=64GB",
    ],
)
def test_values_that_sbatch_takes_are_left_alone(value: str) -> None:
    assert "invalid-value" not in found(f"#!/bin/bash\n#SBATCH --{value}\nhostname\n")


def test_option_without_value_takes_the_next_line() -> None:
    text = script("#SBATCH --job-name", "#SBATCH --nodes=2")
    assert finding_of("missing-value", text).level == "warning"
    assert finding_of("missing-value", script("#SBATCH --job-name")).level == "error"


def test_comment_behind_an_option_is_no_stray_word() -> None:
    assert "stray-word" not in found(script("#SBATCH --nodes=2   # two of them", "#SBATCH hetjob", "#SBATCH -N 1"))


def test_misspelt_option_is_corrected() -> None:
    assert fixed("unknown-option", script("#SBATCH --gpu-per-node=8")) == script("#SBATCH --gpus-per-node=8")
    assert fixed("unknown-option", script("#SBATCH --job_name=x")) == script("#SBATCH --job-name=x")


@pytest.mark.parametrize("line", ["#SBATCH --container-env=A", "#SBATCH --container-writable", "#SBATCH --image=x"])
def test_option_of_another_plugin_is_not_taken_for_a_slip(line: str) -> None:
    assert found(script(line))["unknown-option"] == 3
    assert fixed("unknown-option", script(line)) == script(line)


@pytest.mark.parametrize("name", ["tasks-per-node", "tasks"])
def test_second_name_of_tasks_per_node(name: str) -> None:
    text = script(f"#SBATCH --{name}=4", "#SBATCH --nodes=2", "srun torchrun --nproc-per-node=4 train.py")
    assert "unknown-option" not in found(text)
    assert found(text)["launcher-per-task"] == 3


def test_words_of_a_template_are_one_finding_of_a_line() -> None:
    text = script("#SBATCH --job-name={{ NAME }} x y")
    assert [one.rule for one in lint_script(text)] == ["stray-word"]


@pytest.mark.parametrize(
    ("line", "better"),
    [
        ("#SBATCH --output=log-$SLURM_JOB_ID.txt", "#SBATCH --output=log-%j.txt"),
        ("#SBATCH -o ${SLURM_JOB_NAME}.${SLURM_ARRAY_TASK_ID}", "#SBATCH -o %x.%a"),
        ("#SBATCH --job-name=$RUN", "#SBATCH --job-name=$RUN"),
        ("#SBATCH --output=$RUN/$USER.log", "#SBATCH --output=$RUN/$USER.log"),  # RUN has no pattern
    ],
)
def test_variables_in_directives_are_not_expanded(line: str, better: str) -> None:
    assert found(script(line))["variable-in-directive"] == 3
    assert fixed("variable-in-directive", script(line)) == script(better)


def test_option_given_twice_names_the_first_line() -> None:
    text = script("#SBATCH --nodes=1", "#SBATCH -N 2")
    assert finding_of("repeated-option", text).message == "--nodes is given in line 3 already."
    assert "repeated-option" not in found(script("#SBATCH --nodes=1", "#SBATCH hetjob", "#SBATCH -N 2"))


def test_folder_of_the_log() -> None:
    text = script("#SBATCH --output=logs/%x.out", "#SBATCH --error=logs/%x.err")
    assert [one.line for one in lint_script(text) if one.rule == "log-folder"] == [3]
    assert "log-folder" not in {one.rule for one in lint_script(text, folder_exists=lambda folder: folder == "logs")}
    assert "log-folder" not in found(script("#SBATCH --output=/scratch/%u/out"))  # a person's folder is there already
    named = script("#SBATCH --job-name=gpt", "#SBATCH --output=logs/%x/out")
    assert "log-folder" not in {
        one.rule for one in lint_script(named, folder_exists=lambda folder: folder == "logs/gpt")
    }
    new = script("#SBATCH --output=logs/%j/out")
    assert "log-folder" in {one.rule for one in lint_script(new, folder_exists=lambda _: True)}


def test_tasks_of_an_array_do_not_share_a_log() -> None:
    text = script("#SBATCH --array=0-9", "#SBATCH --output=train.out")
    assert fixed("shared-log", text) == script("#SBATCH --array=0-9", "#SBATCH --output=train_%A_%a.out")
    assert "shared-log" not in found(script("#SBATCH --array=0-9", "#SBATCH --output=/dev/null"))
