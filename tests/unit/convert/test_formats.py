"""Files that cannot be converted are refused with a sentence: where, why, and the next step."""

from __future__ import annotations

import pytest

from headway.convert.conversion import convert_file
from headway.convert.formats import MAX_BYTES, Source, Target
from headway.errors import Fault, InvalidSpec

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(97 + at)}: &{chr(97 + at)} [{', '.join([f'*{chr(96 + at)}'] * 9)}]\n" for at in range(1, 9)
)


def refusal(data: bytes, source: Source | None = None) -> Fault:
    with pytest.raises(InvalidSpec) as raised:
        convert_file(data, source=source)
    assert raised.value.exit_code == 2
    return raised.value.faults[0]


@pytest.mark.parametrize(
    ("data", "path", "message", "hint"),
    [
        (b"", "line 1", "is empty", "name a job file"),
        (b"#!/bin/bash\ntrue\n", "line 1", "without #PBS", "--from pbs, lsf, sge or slurm"),
        (b"#!/bin/bash\n#PBS -N a\n#BSUB -J a\n", "", "lines of PBS and LSF", "--from pbs or --from lsf"),
        (b"#!/bin/bash\n#PBS -N \xe9\n", "line 2", "not UTF-8", "iconv"),
        (b"#!/bin/bash\n\n#PBS -N \0\n", "line 3", "zero byte", "name a job file"),
        (b"kind: Job\n---\nkind: Job\n", "line 2", "second YAML document", "a file of its own"),
        (b"kind: Deployment\n", "kind", "Deployment is no job", "it reads Job, JobSet"),
        (b"kind: [Job]\n", "kind", "is no job", "it reads Job, JobSet"),
        (b"apiVersion: v1\n", "kind", "no kind is no job", "it reads Job, JobSet"),
        (b"kind: Job\nmetadata: {name: {{ .Values.name }}}\n", "line 2", "template: {{ .Values.name }}", "helm template"),
        (b"kind: Job\nmetadata: {name: '{{ name }}'}\n", "metadata.name", "template: {{ name }}", "helm template"),
        (b"type: task\nrun: a\n", "", "fields of dstack and of SkyPilot", "--from dstack or --from skypilot"),
        (b"a: 1\n", "", "no known job file", "--from with one of pbs"),
        (b"- a\n", "line 1", "neither a script nor a job file", "pbs, lsf"),
        (b"just text\n", "line 1", "neither a script nor a job file", "pbs, lsf"),
        (b"run: [\n", "line 2", "not YAML", "check the indentation"),
        (b"run: !!python/name:os.system x\n", "line 1", "tag", "remove it"),
        (b'{"TrainingJobName": "a",\n}', "line 2", "not JSON", "check the quotes"),
        (b'{"a": 1, "a": 2}', "", "given twice", "remove one"),
        (b'{"a": ' * 60 + b"1" + b"}" * 60, "", "nested more than", "name a job file"),
        (b'{"a": ' * 9000, "", "nested more than", "name a job file"),
        (b"num_nodes: many\nrun: a\n", "num_nodes", "is not a whole number", "write a number"),
        (b"run: {a: 1}\n", "run", "is not text", "write one value"),
        (b"num_nodes: 2\n", "run", "is missing", "add the commands"),
        (b"kind: Job\nspec: []\n", "spec", "is not a mapping", "expected a field"),
    ],
)  # fmt: skip
def test_refusal_has_place_reason_and_next_step(data: bytes, path: str, message: str, hint: str) -> None:
    fault = refusal(data)
    assert fault.path == path
    assert message in fault.message
    assert hint in fault.hint


def test_aliases_that_expand_without_bound_are_refused() -> None:
    assert "aliases expanded" in refusal(BOMB.encode()).message


def test_large_file_is_refused_unread() -> None:
    assert "larger than 1 MiB" in refusal(b"#" * (MAX_BYTES + 1)).message


def test_script_that_is_a_slurm_script_already() -> None:
    assert convert_file(b"#!/bin/bash\n#SBATCH -N1\ntrue\n", image="a:1").target == "jobset"
    with pytest.raises(InvalidSpec, match="--to"):
        convert_file(b"#!/bin/bash\n#SBATCH -N1\n", source=Source.SLURM, target=Target.SLURM)
