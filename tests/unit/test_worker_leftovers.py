"""What tasks leave behind is put back, however it was set; what nobody has set is not compared."""

import os
import subprocess
import sys

#: in a process of its own, as functions of modules are wrapped
PROGRAM = """
import _signal, builtins, gc, os, pickle, signal, sys
from signal import alarm
from scaler.worker.leftovers import Leftovers

asked = []
getsignal = _signal.getsignal
_signal.getsignal = lambda number: asked.append(number) or getsignal(number)
os.environ["KEPT"] = "as it was"
leftovers = Leftovers()
asked.clear()
leftovers.undo()
assert not asked, "nothing was set, and handlers were compared"

before = dict(os.environ)
os.environ["KEPT"] = "changed"
os.environ["NEW"] = "left behind"
leftovers.undo()
assert dict(os.environ) == before and not asked
del os.environ["KEPT"]
leftovers.undo()
assert dict(os.environ) == before
os.environ = {"KEPT": "in a dict that somebody has put there"}
leftovers.undo()
assert os.environ == before

handler = signal.getsignal(signal.SIGUSR1)
signal.signal(signal.SIGUSR1, print)
leftovers.undo()
assert signal.getsignal(signal.SIGUSR1) is handler
asked.clear()
leftovers.undo()
assert not asked, "what was put back is compared again"

signal.setitimer(signal.ITIMER_VIRTUAL, 100.0)
signal.alarm(100)
leftovers.undo()
assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == signal.getitimer(signal.ITIMER_REAL)[0] == 0
alarm(100)
leftovers.undo()
assert not signal.getitimer(signal.ITIMER_REAL)[0], "it was set by a function that was there before"
signal.setitimer(signal.ITIMER_PROF, 100.0)
leftovers.note()
leftovers.undo()
assert signal.setitimer(signal.ITIMER_PROF, 0)[0], "a timer that was meant to last was ended"

signal.signal(signal.SIGUSR1, print)
leftovers.note()
leftovers.undo()
assert signal.getsignal(signal.SIGUSR1) is print, "what was meant to last was put back"

plain = builtins.__import__
sys.settrace(lambda *_: None)
sys.setprofile(lambda *_: None)
gc.disable()
builtins.__import__ = None
leftovers.undo()
assert sys.gettrace() is sys.getprofile() is None and gc.isenabled() and builtins.__import__ is plain
del builtins.__import__
leftovers.undo()
assert builtins.__import__ is plain
builtins.__import__ = lambda *given: plain(*given)
leftovers.undo()
assert builtins.__import__ is not plain, "a library may mean that to last"
gc.disable()
leftovers.note()
gc.enable()
leftovers.undo()
assert gc.isenabled()

wrapped = os.putenv, os.unsetenv, signal.setitimer, signal.alarm
assert pickle.loads(pickle.dumps(wrapped)) == wrapped
print("right")
"""


def test_what_was_set_is_put_back_and_nothing_else_is_looked_at() -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environ, timeout=60)
    assert ran.stdout == "right\n", ran.stderr
