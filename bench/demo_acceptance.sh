#!/usr/bin/env bash
# The whole acceptance of the demo: four plants x 3 seeds, 5 clean runs, 20 kills. About an hour on two cores.
# Usage: demo_acceptance.sh [BUILD]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$root/build/release}
status=0
for kind in splitk-merge idx-score-form cmp-state-not-cached chunk-boundary-state; do
  python3 "$root/tests/demo/verdict_test.py" "$build" --kind "$kind" --seeds 3 || status=1
done
python3 "$root/tests/demo/verdict_test.py" "$build" --clean --seeds 5 || status=1
python3 "$root/tests/demo/kill_test.py" "$build" --kills 20 || status=1
exit $status
