#!/bin/bash
# A job that is tried again if it fails, and a report that is written once a try went well. Run it on the login:
#   headway cp examples/restart_chain.sh lab:     headway exec lab -u ME -- bash restart_chain.sh
set -euo pipefail
one_gpu=(--parsable --gres=gpu:1 --time=00:05:00 --output=chain-%j.out)
try=$(sbatch "${one_gpu[@]}" --job-name=chain-try --wrap 'echo "first try"; exit 1')
retry=$(sbatch "${one_gpu[@]}" --job-name=chain-retry --dependency="afternotok:$try" --wrap 'echo "second try"')
report=$(sbatch "${one_gpu[@]}" --job-name=chain-report --dependency="afterok:$retry" --wrap 'echo "the second try went well"')
echo "$try $retry $report"
