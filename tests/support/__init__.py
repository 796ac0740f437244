"""What tests with real processes share: waiting, programs in the background, and the check that nothing is left."""

from support.calls import noting, working
from support.descriptors import no_descriptor_stays
from support.programs import ROOT, Daemons, Program, Scripts
from support.terminal import Terminal, Terminals
from support.traces import Traces, alive, workers_of
from support.waiting import DEADLINE, patience, until, within

__all__ = [
    "DEADLINE",
    "ROOT",
    "Daemons",
    "Program",
    "Scripts",
    "Terminal",
    "Terminals",
    "Traces",
    "alive",
    "no_descriptor_stays",
    "noting",
    "patience",
    "until",
    "within",
    "workers_of",
    "working",
]
