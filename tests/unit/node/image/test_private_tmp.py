"""The option --secret and the sentence of a job without its secrets, with a stand-in for Slurm's header."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from headway.images import recipe

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="compiles the plugin")
HEADER = """\
typedef void *spank_t;
typedef enum { S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE } spank_context_t;
enum { ESPANK_SUCCESS, S_JOB_ID, S_TASK_ID };
struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    int (*cb)(int, const char *, int);
};
#define SPANK_PLUGIN(name, version)
#define slurm_error(...) (fprintf(stderr, __VA_ARGS__), fputc('\\n', stderr))
#define slurm_info slurm_error
#define spank_context() S_CTX_LOCAL
#define spank_option_register(...) ESPANK_SUCCESS
#define spank_job_control_setenv(...) ESPANK_SUCCESS
#define spank_setenv(spank, name, value, overwrite) (printf("%s=%s\\n", name, value), ESPANK_SUCCESS)
#define spank_get_item(...) ESPANK_SUCCESS
"""
MAIN = """\
int main(int count, char **words)
{
    set_mps(NULL, words[1]);
    read_secrets_error(words[1]);
    printf("%s", secrets_error);
    for (int n = 2; n < count; n++)
        if (on_secret(0, words[n], 0) != 0)
            return 1;
    puts(names);
    return 0;
}
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program: FOLDER of the job, then the values of --secret. It prints what the task gets, and the names."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "slurm").mkdir()
    (folder / "slurm/spank.h").write_text(HEADER)
    source = recipe.files_folder() / "spank/private_tmp.c"
    (folder / "main.c").write_text(f'#include "{source}"\n{MAIN}')
    argv = ["gcc", "-w", f"-I{folder}", "-o", str(folder / "plugin"), str(folder / "main.c")]
    subprocess.run(argv, check=True, timeout=60)
    return folder / "plugin"


def run(plugin: Path, folder: Path, *values: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([plugin, folder, *values], capture_output=True, text=True, check=False, timeout=10)


def test_names_of_all_options_reach_the_prolog(plugin: Path, tmp_path: Path) -> None:
    assert run(plugin, tmp_path, "wandb,hf", "token").stdout == "wandb,hf,token\n"
    longest = [letter * 64 for letter in "abcdefghijklmnop"]
    assert run(plugin, tmp_path, *longest).stdout == ",".join(longest) + "\n"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (",".join(f"n{number}" for number in range(17)), "a job gets at most 16 secrets: name fewer"),
        ("a" * 65, "a name has up to 64 letters"),
        ("../x", "a name has up to 64 letters"),
        ("a,,b", "a name has up to 64 letters"),
        ("", "a name has up to 64 letters"),
    ],
)
def test_other_names_are_refused(plugin: Path, tmp_path: Path, value: str, says: str) -> None:
    refused = run(plugin, tmp_path, value)
    assert refused.returncode == 1
    assert says in refused.stderr


def test_task_gets_the_sentence_of_the_prolog(plugin: Path, tmp_path: Path) -> None:
    assert run(plugin, tmp_path).stdout == "\n"
    file = tmp_path / "secrets-error"
    file.write_text("headway: there is no secret wandb\n")
    assert run(plugin, tmp_path).stdout == "headway: there is no secret wandb\n\n"
    file.write_text("")  # a full disk
    assert run(plugin, tmp_path).stdout.startswith("headway: the job can't have its secrets: tell an administrator")


def test_task_finds_the_mps_daemon_of_the_job(plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "mps").write_text("/run/mps/7\n")
    assert run(plugin, tmp_path).stdout.startswith("CUDA_MPS_PIPE_DIRECTORY=/run/mps/7\n")
