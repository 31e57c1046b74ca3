"""Every format is recognised, read and written; nothing of a file is dropped in silence; scripts pass lint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.convert.conversion import Converted, convert_file
from headway.convert.formats import SCRIPTS, Source, Target
from headway.errors import Fault, InvalidSpec
from headway.lint.rules import lint_script
from tests.support.job_files import JOB_FILES
from tests.support.kubernetes_schemas import schema_faults
from tests.support.property_examples import examples

IMAGE = "example.org/team/image:1"
TO_SLURM = [source for source in Source if source is not Source.SLURM]


def convert(text: str, **options: Any) -> Converted:
    return convert_file(text.encode(), **options)


def refusal(text: str, **options: Any) -> Fault | None:
    """Returns why a text is not converted, None if it is."""
    try:
        convert(text, image=IMAGE, **options)
    except InvalidSpec as error:
        return error.faults[0]
    return None


@pytest.mark.parametrize("source", TO_SLURM)
def test_script_of_each_format_passes_lint(source: Source) -> None:
    converted = convert(JOB_FILES[source])
    assert (converted.source, converted.target) == (source, Target.SLURM)
    assert [finding for finding in lint_script(converted.text) if finding.level != "note"] == []
    assert "hf_abcdefgh" not in converted.text


@pytest.mark.parametrize("target", [Target.JOBSET, Target.PYTORCHJOB, Target.RAYJOB])
@pytest.mark.parametrize("source", list(Source))
def test_objects_for_kubernetes_keep_to_their_schemas(source: Source, target: Target) -> None:
    # A Ray cluster is a RayJob alone, and all pods of a PyTorchJob run one command; the JobSet has two.
    refused = {(Source.RAYJOB, Target.JOBSET), (Source.RAYJOB, Target.PYTORCHJOB), (Source.JOBSET, Target.PYTORCHJOB)}
    if source.value == target.value or (source, target) in refused:
        with pytest.raises(InvalidSpec, match="--to"):
            convert(JOB_FILES[source], target=target, image=IMAGE)
        return
    converted = convert(JOB_FILES[source], target=target, image=IMAGE)
    assert schema_faults(converted.text) == []


# ---- nothing is dropped in silence: without a field or directive the result differs, or the field is in the losses


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _leaves(member, (*path, key))
    elif isinstance(value, list) and value:
        for at, member in enumerate(value):
            yield from _leaves(member, (*path, at))
    elif value is not None and value not in ({}, []):
        yield path


def _shown(path: tuple[Any, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f'["{part}"]' if "." in part else f".{part}"
    return text.removeprefix(".")


def _without(document: Any, path: tuple[Any, ...]) -> Any:
    copy = json.loads(json.dumps(document))
    at = copy
    for part in path[:-1]:
        at = at[part]
    del at[path[-1]]
    return copy


def _named(converted: Converted, where: str) -> bool:
    return any(
        where == loss.where or re.match(rf"{re.escape(loss.where)}(?=[.\[:]|$)", where)
        for loss in converted.losses
        if loss.where
    )


EXTRA = {  # fields that no reader carries, at different depths
    "unknown": {"deep": [{"a.b/c": 1}, 2]},
    "unknownText": "x",
}


@pytest.mark.parametrize("source", [source for source in Source if source not in SCRIPTS])
def test_each_field_changes_the_result_or_is_in_the_losses(source: Source) -> None:
    document = yaml.safe_load(JOB_FILES[source]) | EXTRA
    for parent in ("spec", "resources", "ResourceConfig"):
        if isinstance(document.get(parent), dict):
            document[parent] |= EXTRA
    whole = convert(yaml.safe_dump(document, sort_keys=False), source=source)
    silent = []
    for path in _leaves(document):
        if _named(whole, _shown(path)):
            continue
        try:
            other = convert(yaml.safe_dump(_without(document, path), sort_keys=False), source=source)
        except InvalidSpec:
            continue  # the field is needed
        if (other.text, other.losses) == (whole.text, whole.losses):
            silent.append(_shown(path))
    # With the number that holds without them.
    assert set(silent) <= DEFAULTS.get(source, set())


DEFAULTS = {
    Source.JOBSET: {
        *(f"spec.replicatedJobs[{at}].template.spec.template.spec.containers[0].image" for at in (0, 1)),
        "spec.replicatedJobs[1].replicas", "spec.replicatedJobs[1].template.spec.completions"},
    Source.PYTORCHJOB: {
        "spec.pytorchReplicaSpecs.Master.replicas", "spec.pytorchReplicaSpecs.Worker.replicas",
        # Both replicas have the same program and resources.
        *(f"spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].{part}"
          for part in ("image", 'resources.limits["nvidia.com/gpu"]')),
        *(f"spec.pytorchReplicaSpecs.Master.template.spec.containers[0].{part}"
          for part in ("image", 'resources.limits["nvidia.com/gpu"]')),
    },
    Source.MPIJOB: {
        "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].image",
        "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].image",
    },
    Source.RAYJOB: {
        f"spec.rayClusterSpec.{part}.template.spec.containers[0].image" for part in ("headGroupSpec", "workerGroupSpecs[0]")
    } | {'spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].resources.limits.cpu'},
}  # fmt: skip

VALUES = st.sampled_from(
    ["1", "4", "0", "x", "2gb", "4G", "1:00:00", "30", "a=b", "nodes=2:ppn=4", "select=2:ncpus=2:mem=1gb:arch=x", "walltime=60",
     "y", "n", "abe", "all.q", "1-4", "1-4:2%2", "smp 4", "mpi 8", "h_rt=60,foo=1", "span[ptile=2]", "rusage[mem=5:lic=1]",
     "num=2:gmodel=A", "'quoted value'", "a'b\"c", "$HOME/x", "depend=afterok:1", "done(1)", "job[1-3]%2", "logs/", "100,200",
     "NAME=value,OTHER", "API_KEY=abcdefgh", "ümlaut", "0:30/host", "-", ""]
)  # fmt: skip
LETTERS = st.sampled_from("NlqAjokeMmtJSrVvhaWPpcwzXIRnugxHBLCbiEfD")
WORDS = st.sampled_from(
    ["-cwd", "-pe", "-tc", "-hold_jid", "-gpu", "-oo", "-cwd /x", "-l", "-wd", "-sync", "-nope", "--long"]
)
OPTIONS = st.one_of(LETTERS.map(lambda letter: f"-{letter}"), WORDS)
LINES = st.lists(st.tuples(OPTIONS, VALUES), min_size=1, max_size=8)


@pytest.mark.parametrize(("source", "sign"), [(Source.PBS, "#PBS"), (Source.LSF, "#BSUB"), (Source.SGE, "#$")])
@settings(max_examples=examples(300), deadline=None)
@given(lines=LINES)
def test_each_directive_is_carried_or_in_the_losses(source: Source, sign: str, lines: list[tuple[str, str]]) -> None:
    text = "\n".join(["#!/bin/bash", *(f"{sign} {option} {value}" for option, value in lines), "echo done", ""])
    converted = convert(text, source=source)
    places = {place.where for place in converted.carried} | {loss.where for loss in converted.losses}
    assert {f"line {number}" for number in range(2, len(lines) + 2)} <= places
    assert "export API_KEY" not in converted.text
    directives = [line for line in converted.text.split("\n") if line.startswith("#SBATCH")]
    assert all(re.match(r"#SBATCH --[a-z-]+(=\S.*)?$", line) for line in directives)
    assert not [
        found
        for found in lint_script(converted.text)
        if found.rule in ("stray-word", "missing-value", "unknown-option")
    ]
    # A line whose removal changes nothing must be named; another line may set the same.
    for at in range(len(lines)):
        line = f"line {at + 2}"
        if any(loss.where == line or loss.why.startswith(f"{line} sets") for loss in converted.losses):
            continue
        rest = "\n".join(
            ["#!/bin/bash", *(f"{sign} {o} {v}" if n != at else "#" for n, (o, v) in enumerate(lines)), "echo done", ""]
        )
        other = convert(rest, source=source)
        assert other.text.replace("#\n", "") != converted.text or lines.count(lines[at]) > 1


@settings(max_examples=examples(200), deadline=None)
@given(text=st.text(max_size=300), source=st.sampled_from([None, *Source]))
def test_any_text_is_converted_or_refused_with_a_sentence(text: str, source: Source | None) -> None:
    fault = refusal(text, source=source)
    assert fault is None or (fault.message and fault.hint)


MESSY = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.text(max_size=8) | st.sampled_from(["1Gi", "H100:8", "$(A)", "9m"]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.parametrize("source", [source for source in Source if source not in SCRIPTS])
@settings(max_examples=examples(200, cases=len(Source) - len(SCRIPTS)), deadline=None)
@given(data=st.data())
def test_any_value_in_any_field_is_converted_or_refused(source: Source, data: st.DataObject) -> None:
    document = yaml.safe_load(JOB_FILES[source])
    path = data.draw(st.sampled_from(sorted(_prefixes(document), key=str)))
    copy = json.loads(json.dumps(document))
    at = copy
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = data.draw(MESSY)
    target = data.draw(st.sampled_from([target for target in Target if target.value != source.value]))
    if refusal(json.dumps(copy), source=source, target=target) is not None:
        return
    converted = convert(json.dumps(copy), source=source, target=target, image=IMAGE)
    if target is Target.SLURM:
        lint_script(converted.text)
    else:
        assert schema_faults(converted.text) == []


def _prefixes(document: Any) -> set[tuple[Any, ...]]:
    return {path[:length] for path in _leaves(document) for length in range(1, len(path) + 1)}
