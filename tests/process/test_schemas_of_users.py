"""Programs and tasks that load schemas of Cap'n Proto of their own, as if nobody else used pycapnp in their process.

pycapnp ends the process of whoever loads a file that its parser can't open.
"""

from textwrap import dedent

SCHEMAS = """
import os, sys
import capnp
from pathlib import Path

def written(folder, name, number):
    path = Path(folder, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"@0xc1a7d5b3e2f4099{number};\\nstruct Point {{ x @0 :UInt32; }}\\n")
    return str(path)

def loaded(path):
    return capnp.load(path).Point.new_message(x=7).x
"""


def test_a_task_loads_a_schema(scripts, tmp_path):
    program = """
    import scaler

    if __name__ == "__main__":
        with scaler.Executor(1) as pool:
            print(pool.submit(loaded, written(sys.argv[1], "a.capnp", 1)).result(40))
    """
    assert scripts.run(SCHEMAS + dedent(program), str(tmp_path)) == "7\n"


def test_a_program_loads_a_schema_from_where_it_stands_though_it_has_gone_there_later(scripts, tmp_path):
    program = """
    import scaler

    if __name__ == "__main__":
        with scaler.Executor(1) as pool:
            assert pool.submit(abs, -1).result(40) == 1
            written(sys.argv[1] + "/later", "b.capnp", 2)
            os.chdir(sys.argv[1] + "/later")
            print(loaded("b.capnp"))
    """
    assert scripts.run(SCHEMAS + dedent(program), str(tmp_path)) == "7\n"
