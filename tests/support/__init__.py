"""What tests with real processes share: waiting, programs in the background, and the check that nothing is left."""

from support.programs import ROOT, Daemons, Program, Scripts
from support.traces import Traces, alive, workers_of
from support.waiting import DEADLINE, until

__all__ = ["DEADLINE", "ROOT", "Daemons", "Program", "Scripts", "Traces", "alive", "until", "workers_of"]
