"""`sbatch`, `squeue` and `scancel` as small scripts that really run the batch script, in a directory for the PATH."""

import os
import signal
from pathlib import Path

SBATCH = """\
script=$(cat)
array=$(( $(cat "$PLACE/count" 2>/dev/null || echo 100) + 1 )); echo $array > "$PLACE/count"
[ -e "$PLACE/refuse" ] && { echo "sbatch: error: Batch job submission failed: $(cat "$PLACE/refuse")" >&2; exit 1; }
name=$(echo "$script" | sed -n 's/^#SBATCH --job-name=//p'); last=$(echo "$script" | sed -n 's/^#SBATCH --array=0-//p')
echo "$script" > "$PLACE/$array.sh"
for i in $(seq 0 $last); do
    echo "$name" > "$PLACE/${array}_$i.name"
    SLURM_ARRAY_JOB_ID=$array SLURM_ARRAY_TASK_ID=$i \\
        setsid sh "$PLACE/$array.sh" > "$PLACE/${array}_$i.out" 2>&1 < /dev/null &
    echo $! > "$PLACE/${array}_$i.new"; mv "$PLACE/${array}_$i.new" "$PLACE/${array}_$i.pid"  # never seen empty
done
echo $array
"""
SQUEUE = """\
[ "$1" = --version ] && { echo "slurm-wlm 22.05.8"; exit; }
for file in "$PLACE"/*.pid; do
    [ -e "$file" ] || continue
    job=$(basename "$file" .pid)
    state=COMPLETED; kill -0 "$(cat "$file")" 2>/dev/null && state=RUNNING
    echo "$job|$state|fake|None|$(cat "$PLACE/$job.name")"
done
"""
SCANCEL = """\
for job in "$@"; do kill "$(cat "$PLACE/$job.pid")" 2>/dev/null; done; true
"""


class FakeSlurm:
    """Commands in a directory; jobs are processes of this machine that outlive who asked for them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.bin = place / "bin"
        self.bin.mkdir()
        for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)):
            path = self.bin / name
            path.write_text(f"#!/bin/sh\nPLACE={place}\n{text}")
            path.chmod(0o755)
        self.path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def running(self) -> dict[str, int]:
        """Process ids by job."""
        found = {}
        for path in self.place.glob("*.pid"):
            pid = int(path.read_text())
            if _is_alive(pid):
                found[path.stem] = pid
        return found

    def close(self) -> None:
        """Kill what is left."""
        for pid in self.running().values():
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
