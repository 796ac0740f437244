import subprocess
import sys

from scaler.serialize import payload
from scaler.serialize.lasting import lasting_parts

SCRIPT = """
import enum, sys, threading
sys.path[:] = {path!r}
from scaler.serialize import payload
from scaler.serialize.lasting import lasting_parts
lock = threading.Lock()
class One: pass
class Two(enum.Enum): A = 1
def use(): return lock, One, Two
numbers = {}
for value in (use, One(), Two, "0123456789abcdef" * 2):
    print(b"".join(lasting_parts(payload.dumps(value), numbers)))
"""


def test_pickles_of_two_runs_have_the_same_lasting_parts():
    command = [sys.executable, "-c", SCRIPT.replace("{path!r}", repr(sys.path))]
    one, other = (subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2))
    assert one == other
    assert b"0123456789abcdef0123456789abcdef" in one


def test_two_classes_are_told_apart():
    class One: ...

    class Two: ...

    def lasting(*values):
        return b"".join(lasting_parts(payload.dumps(values), {}))

    One.__qualname__ = Two.__qualname__ = One.__name__ = Two.__name__ = "Same"
    if sys.version_info >= (3, 13):  # has where a class stands
        One.__firstlineno__ = Two.__firstlineno__ = 1
    assert lasting(One(), Two(), One()) == lasting(Two(), One(), Two())
    assert lasting(One(), Two(), One()) != lasting(One(), Two(), Two())
