"""The real cores of many processes over a virtual clock and a faulty network, from one seed.

world.py     the clock, processes, the story of what happened
network.py   connections that delay, break and partition, and the real Initiator over them
server.py    a scheduler: the real Acceptor and SchedulerCore
hosts.py     an agent: the real AgentCore, with simulated workers (workers.py)
clients.py   a client: the real SessionCore, and what its user does with it
jobs.py      what rows do, and how they may end
workload.py  what users do: from the seed
faults.py    what goes wrong: from the seed
checks.py    what must hold after each step, and at the end
runs.py      one run of it all
"""
