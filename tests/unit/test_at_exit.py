"""The order in which a program's clients and clusters end."""

import subprocess
import sys


def test_clients_take_leave_before_clusters_end_whoever_came_first():
    program = """
from scaler.common import at_exit
at_exit.register(at_exit.CLUSTERS, lambda: print("clusters"))
at_exit.register(at_exit.CLIENTS, lambda: print("clients"))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["clients", "clusters"]
