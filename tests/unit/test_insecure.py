"""What monitors say of a scheduler that was started with --insecure: where it can be reached, and what to do."""

from dataclasses import replace

import pytest

from bench.synthetic import SyntheticCluster
from scaler.monitor.formats import width
from scaler.monitor.insecure import exposure_of
from scaler.protocol.messages.cluster_view import SchedulerView
from scaler.protocol.views import decode_view, encode_view

DO = "start it without --insecure (docs/running.md, Keys)"
#: of a terminal, at least
NARROWEST = 60


def insecure_at(address: str) -> SchedulerView:
    return SchedulerView(address=address, insecure=True)


def test_with_keys_nothing_is_said():
    assert exposure_of(SchedulerView(address="tcp://0.0.0.0:2345")) is None
    assert exposure_of(SyntheticCluster(1, 1).snapshot().scheduler) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "[::]", "[fe80::1]", "head.example.org"])
def test_where_other_hosts_reach_it_that_is_a_warning_with_the_address_and_what_to_do(host):
    exposure = exposure_of(insecure_at(f"tcp://{host}:2345"))
    assert not exposure.is_quiet
    assert exposure.words == f"whoever reaches tcp://{host}:2345 can run code as its user; {DO}"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_where_only_its_own_machine_reaches_it_it_is_said_quietly(host):
    exposure = exposure_of(insecure_at(f"tcp://{host}:2345"))
    assert exposure.is_quiet
    assert exposure.words == f"whoever is on its machine can run code as its user through tcp://{host}:2345; {DO}"


@pytest.mark.parametrize("address", ["", "ipc:///tmp/a", "tcp://", f"tcp://127.0.0.1:{'9' * 5000}", "127.0.0.1\n"])
def test_an_address_that_is_none_counts_as_one_that_others_reach(address):
    exposure = exposure_of(insecure_at(address))
    assert not exposure.is_quiet
    assert exposure.words.startswith("whoever reaches ")
    assert exposure.words.endswith(f" can run code as its user; {DO}")
    assert exposure.words.isprintable()
    assert ("whoever reaches it can" in exposure.words) == (address == "")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:2345", "tcp://10.11.12.13:65535", f"tcp://{'n' * 300}:1", ""])
def test_in_any_terminal_it_is_one_line_that_is_not_cut_and_says_what_to_do(address):
    exposure = exposure_of(insecure_at(address))
    for columns in range(NARROWEST, 500):
        line = exposure.line(columns)
        assert width(line) <= columns
        assert line.startswith("insecure: ")
        assert "without --insecure" in line
    assert exposure.line(500) == f"insecure: {exposure.words}"
    if not exposure.is_quiet and 0 < len(address) < NARROWEST:
        assert address in exposure.line(90)


def test_it_stays_said_after_the_wire():
    snapshot = SyntheticCluster(1, 1).snapshot()
    for insecure in (True, False):
        view = replace(snapshot.view, scheduler=replace(snapshot.scheduler, insecure=insecure))
        assert decode_view(encode_view(view)).scheduler.insecure is insecure
