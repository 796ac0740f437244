"""Libraries that were written for the original Scaler, installed without it: they find ours under `import scaler`.

python -m compat_tests.companions
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

from compat_tests import environments

PACKAGES = ["opengris-parfun==7.4.0", "pargraph==0.9.6"]

#: a program of each, which prints what it should
PROGRAMS = {
    "parfun": (
        """
        import parfun as pf
        from parfun.entry_point import BACKEND_REGISTRY

        @pf.parallel(split=pf.all_arguments(pf.py_list.by_chunk), combine_with=pf.py_list.concat)
        def double(values: list) -> list:
            return [2 * value for value in values]

        assert {"scaler_local", "scaler_remote"} <= set(BACKEND_REGISTRY)
        with pf.set_parallel_backend_context("scaler_local", n_workers=2, logging_level="ERROR"):
            print(double(list(range(1000))) == list(range(0, 2000, 2)))
        """,
        "True",
    ),
    "pargraph": (
        """
        import scaler
        from pargraph import GraphEngine, delayed, graph

        @delayed
        def add(x: int, y: int) -> int:
            return x + y

        @graph
        def total(a: int, b: int, c: int) -> int:
            return add(add(a, b), c)

        nodes, keys = total.to_graph().to_dict(a=1, b=2, c=3)
        with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.get_address()) as client:
            print(GraphEngine(backend=client).get(nodes, keys), list(client.get(nodes, keys).values()))
        """,
        "[6] [6]",
    ),
}


def main() -> int:
    """Run them; the exit code."""
    python = environments.make("companions", sys.executable, PACKAGES)
    wrong = 0
    for name, (program, expected) in PROGRAMS.items():
        command = [python, "-c", textwrap.dedent(program)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        printed = ended.stdout.strip().splitlines()[-1:]
        is_right = not ended.returncode and printed == [expected]
        print(f"{name:12}{'ok' if is_right else 'failed'}", flush=True)
        if not is_right:
            print(textwrap.indent(ended.stdout + ended.stderr, "    "), flush=True)
        wrong |= not is_right
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
