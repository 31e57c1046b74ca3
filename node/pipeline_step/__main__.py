"""The commands of the program:

begin PLAN STEP ARGV...   before the command; prints lines for `eval`: variables with the outputs of earlier steps, and the
                          command with outputs in place of {STEP.OUTPUT}; `exit 0` for a step that is skipped or cached
end PLAN STEP             after a command that succeeded; checks and records its outputs
forget FOLDER STEP=JOB... deletes the results of steps that these jobs recorded: other jobs run the steps again"""

import json
import shlex
import sys

from pipeline_step.outputs import StepFault
from pipeline_step.results import Results
from pipeline_step.step import Step


def main():
    what, place, words = sys.argv[1], sys.argv[2], sys.argv[3:]
    if what == "forget":
        for name, _, job in (word.partition("=") for word in words):
            if (Results(place).read(name) or {}).get("job") == int(job):
                Results(place).forget(name)
        return 0
    try:
        with open(place) as file:
            step = Step(json.load(file), words[0])
        if what == "end":
            step.end()
            return 0
        variables, argv = step.begin(words[1:])
    except (StepFault, OSError) as error:
        print(f"headway: step {words[0]}: {error}", file=sys.stderr)
        return 1
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    print("exit 0" if argv is None else f"set -- {shlex.join(argv)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
