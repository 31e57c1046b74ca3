"""One step of a pipeline: before and after its command.

The plan is a JSON object that is the same for all steps:

    {"folder": "/scratch/ada/runs/...", "cache": "/scratch/ada/.headway/pipeline-cache",
     "metrics": "/scratch/ada/.headway/metrics", "steps": {"train": {"needs": ["prepare"], "when": [...],
     "outputs": {...}, "inputs": [...] or null, "digests": true, "settings": "...", "fresh": false, "earlier": [11]}}}

`digests`: the step's output files are hashed, because it or a step that needs it is cached. `earlier`: jobs of the step before
a retry; their results do not count."""

import os
import re
import subprocess
import sys
import time
from time import sleep as pause

from pipeline_step.cache import Cache, content_key
from pipeline_step.conditions import failed_comparison
from pipeline_step.outputs import StepFault, collect
from pipeline_step.results import Results

KEY = "HEADWAY_STEP_KEY"
_SQUEUE_S = 60
_RESULT_S = 90  # longer than the minute for which NFS may keep that a folder has no such file


class Step:
    """A step of the plan, in its job."""

    def __init__(self, plan, name):
        self._plan, self._name, self._step = plan, name, plan["steps"][name]
        self._results = Results(plan["folder"])
        self._job = int(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID", "0"))

    def begin(self, argv):
        """Returns the variables to set and the command to run; None for the command if the step is skipped or cached. Raises
        StepFault for an input, or a result of a needed step, that is missing."""
        self._results.forget(self._name)
        self._wait_for_results()
        why = self._skip_reason(self._name)
        if why:
            self._finish({"state": "skipped", "why": why, "outputs": {}})
            print(f"headway: step {self._name} is skipped: {why}", file=sys.stderr)
            return {}, None
        values = self._values(self._name)
        variables = {variable(*of): value for of, value in values.items()}
        written = self._results.path(self._name, "outputs")
        os.makedirs(os.path.dirname(written), exist_ok=True)
        open(written, "w").close()
        variables["HEADWAY_OUTPUTS"] = written
        if self._step["inputs"] is not None:
            variables[KEY] = key = self._key(argv)
            known = None if self._step["fresh"] else self._cache.find(key, self._plan["folder"])
            if known is not None:
                why = f"its content is that of job {known['job']}"
                self._finish({"state": "cached", "why": why, "source": known["job"], "outputs": known["outputs"]})
                print(f"headway: step {self._name} is cached: {why}", file=sys.stderr)
                return variables, None
        return variables, substitute(argv, values)

    def end(self):
        """Records the outputs. Raises StepFault for one that is missing."""
        declared, plan = self._step["outputs"], self._plan
        metrics = os.path.join(plan["metrics"], f"{self._job}.jsonl")
        written = self._results.path(self._name, "outputs")
        outputs = collect(declared, plan["folder"], written, metrics, self._step["digests"])
        if key := os.environ.get(KEY):
            self._cache.save(key, self._job, outputs)
        self._finish({"state": "done", "why": "", "outputs": outputs})

    def _wait_for_results(self):
        """Waits until all needed steps have a result: this node may see late what other nodes wrote."""
        for _ in range(_RESULT_S):
            missing = [need for need in self._step["needs"] if self._result(need) is None]
            if not missing:
                return
            pause(1)
            self._results.refresh()
        raise StepFault(
            f"the result of step {missing[0]} is not in {self._results.folder}; run it again with --step {missing[0]}"
        )

    def _result(self, name):
        """Returns the result of a step; None if it has none, one that can't be read, or only one of a job before a retry."""
        found = self._results.read(name)
        if found is None or found.get("job") in self._plan["steps"][name]["earlier"]:
            return None
        outputs = found.get("outputs")
        whole = isinstance(outputs, dict) and all(isinstance(one, dict) and "value" in one for one in outputs.values())
        return found if whole else None

    @property
    def _cache(self):
        return Cache(self._plan["cache"])

    def _values(self, name):
        """Returns the outputs of the steps that step `name` needs: (step, output) -> text."""
        results = {need: self._result(need) or {} for need in self._plan["steps"][name]["needs"]}
        return {
            (need, output): str(one["value"])
            for need, result in results.items()
            for output, one in result.get("outputs", {}).items()
        }

    def _key(self, argv):
        """Returns the key of the step's content: the outputs of needed steps count by content, not by path."""
        contents = {}
        for need in self._step["needs"]:
            for output, one in (self._result(need) or {}).get("outputs", {}).items():
                contents[need, output] = one.get("sha256") or one.get("version") or one["value"]
        named = sorted([*of, content] for of, content in contents.items())
        return content_key([self._step["settings"], named], argv, self._step["inputs"], self._plan["folder"])

    def _finish(self, result):
        """Records the result of this step, and cancels the jobs of later steps that are skipped now."""
        self._results.write(self._name, {"job": self._job, "source": 0, "at": time.time(), **result})
        skipped = {}
        for name, step in self._plan["steps"].items():
            if not step["needs"] or self._result(name) is not None:
                continue
            reason = next((f"step {need} is skipped" for need in step["needs"] if need in skipped), "")
            if reason := reason or self._skip_reason(name):
                skipped[name] = reason
        if skipped:
            self._cancel(skipped)

    def _skip_reason(self, name):
        """Returns why a step is skipped; "" if it is not, or not all steps that it needs have a result."""
        step = self._plan["steps"][name]
        results = {need: self._result(need) for need in step["needs"]}
        for need, result in results.items():
            if result is not None and result.get("state") == "skipped":
                return f"step {need} is skipped"
        if not step["when"] or None in results.values():
            return ""
        return failed_comparison(step["when"], self._values(name))

    def _cancel(self, skipped):
        """Records these steps as skipped and cancels their jobs, which wait. A job that this misses skips its step itself."""
        waiting = {}
        try:
            ask = ["squeue", "-h", "--me", "-t", "PENDING", "-o", "%F|%j|%Z"]  # %F: of an array the number of the whole
            told = subprocess.run(ask, stdout=subprocess.PIPE, text=True, timeout=_SQUEUE_S, check=True).stdout
            for line in told.splitlines():
                number, name, folder = line.split("|", 2)
                if folder == self._plan["folder"] and name in skipped and number.isdigit():
                    waiting[name] = number
            for name, number in waiting.items():
                result = {"job": int(number), "state": "skipped", "why": skipped[name], "source": 0, "at": time.time()}
                self._results.write(name, {**result, "outputs": {}})
            if waiting:
                subprocess.run(["scancel", *waiting.values()], timeout=_SQUEUE_S, check=True)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"headway: the jobs of skipped steps were not cancelled: {error}", file=sys.stderr)


def variable(step, output):
    """Returns the name of the variable of an output: HEADWAY_OUTPUT_TRAIN_MODEL."""
    return "HEADWAY_OUTPUT_" + re.sub(r"[^A-Za-z0-9]", "_", f"{step}_{output}").upper()


def substitute(argv, values):
    """Returns the words with {STEP.OUTPUT} replaced. Braces with any other text stay as they are."""
    if not values:
        return argv
    texts = {f"{{{step}.{output}}}": value for (step, output), value in values.items()}
    pattern = re.compile("|".join(map(re.escape, texts)))
    return [pattern.sub(lambda match: texts[match[0]], word) for word in argv]
