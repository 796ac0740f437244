"""What commands list of a cluster: records with a version, filters, order; on synthetic snapshots."""

import json
from dataclasses import replace

import pytest

from bench.synthetic import SyntheticCluster
from scaler.cli import lists
from scaler.errors import ScalerError
from scaler.monitor.listing import KINDS, Filters, listed, status


@pytest.fixture(scope="module")
def snapshot():
    return SyntheticCluster(agents=4, workers=6, clients=3, functions=5).snapshot()


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_json_with_a_version_and_stand_in_the_order_of_the_cells(kind, snapshot):
    found = listed(kind, snapshot, Filters())
    assert len(found.records) == found.table.length(snapshot) > 0
    assert all(json.loads(json.dumps(record)) == record for record in found.records)
    assert {record["v"] for record in found.records} == {1}
    heads, *cells = found.cells()
    assert heads == tuple(column.name for column in found.table.columns)
    assert cells == found.table.rows(snapshot, found.rows)


def test_a_worker_has_its_task_by_the_name_that_questions_take(snapshot):
    for record in listed("workers", snapshot, Filters()).records:
        client, colon, row = record["task"].partition(":")
        if record["function"]:
            assert (int(client), colon) == (record["client"], ":")
            assert int(row) in snapshot.workers.ids
        else:
            assert record["task"] == ""
        assert record["host"] == f"host-{record['agent']:04}"


def test_filters_are_all_met(snapshot):
    every = listed("workers", snapshot, Filters()).records
    busy = next(record for record in every if record["function"])
    filters = Filters(host=busy["host"], function=busy["function"], client=busy["client"])
    found = listed("workers", snapshot, filters).records
    names = ("host", "function", "client")
    assert found == [record for record in every if all(record[name] == busy[name] for name in names)]
    assert 0 < len(found) < len(every)
    assert [record["host"] for record in listed("agents", snapshot, Filters(find="0003")).records] == ["host-0003"]
    assert len(listed("objects", snapshot, Filters(client=2)).records) == 17


def test_rows_are_sorted_by_a_column_and_cut_after_that(snapshot):
    found = listed("agents", snapshot, Filters(sort="stored", limit=2)).records
    every = listed("agents", snapshot, Filters()).records
    assert [record["stored_bytes"] for record in found] == sorted(record["stored_bytes"] for record in every)[:1:-1]
    names = [record["host"] for record in listed("agents", snapshot, Filters(sort="agent")).records]
    assert names == sorted(names)


def test_an_unknown_column_is_said_with_those_that_there_are(snapshot):
    with pytest.raises(ScalerError, match="clients have no column 'cpu' to sort by: they have client, number, "):
        listed("clients", snapshot, Filters(sort="cpu"))


def test_long_names_are_cut_to_what_a_terminal_has_room_for_and_whole_elsewhere():
    snapshot = SyntheticCluster(functions=5).snapshot()
    names = tuple(f"module.{'f' * 500}_{number}" for number in range(len(snapshot.functions)))
    snapshot.functions.names = names
    long = listed("functions", snapshot, Filters())
    assert {record["function"] for record in long.records} == set(names)
    _, *lines = lists._table(long, None).split("\n")
    assert {line.partition(" ")[0] for line in lines} == set(names)
    for screen in (150, 400):
        table = lists._table(long, screen)
        assert max(map(len, table.split("\n"))) == screen
        _, *lines = table.split("\n")
        assert {line.partition(" ")[0][-4:] for line in lines} == {f"ff_{number}" for number in range(len(names))}
    assert lists._table(long, 1000) == lists._table(long, None)
    _, *lines = lists._table(long, 20).split("\n")
    assert {len(line.partition(" ")[0]) for line in lines} == {lists.SHORTEST}


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({}, "which stands by; 3 agents that both count"),
        ({"stands_by": True}, "which leads, and this one stands by; 3 agents that both count"),
        ({"silence": 12.0}, "which has not been heard for 12.0s: nobody stands by; 3 agents count"),
        ({"silence": 12.0, "stands_by": True}, "which has not been heard for 12.0s; 3 agents count"),
    ],
)
def test_the_status_says_how_the_other_one_of_a_pair_is(snapshot, what, words):
    scheduler = replace(snapshot.scheduler, partner="tcp://b:1", roster=3, **what)
    whole = lists._whole(status(replace(snapshot, view=replace(snapshot.view, scheduler=scheduler))))
    assert whole.endswith(f"\npair      with the scheduler at tcp://b:1, {words}")


def test_the_status_counts_what_the_lists_have(snapshot):
    whole = status(snapshot)
    assert (whole["agents"], whole["workers"], whole["clients"]) == (4, 24, 3)
    assert whole["free"] == sum(record["free"] for record in listed("workers", snapshot, Filters()).records)
    assert whole["tasks"]["running"] == snapshot.rows.running
    assert json.loads(json.dumps(whole)) == whole


def insecure_at(address, snapshot):
    scheduler = replace(snapshot.scheduler, address=address, insecure=True)
    return replace(snapshot, view=replace(snapshot.view, scheduler=scheduler))


def test_a_scheduler_without_keys_is_said_in_the_status_and_first_of_all_where_others_reach_it(snapshot):
    assert status(snapshot)["scheduler"]["insecure"] == ""
    assert "insecure" not in lists._whole(status(snapshot))
    found = status(insecure_at("tcp://0.0.0.0:2345", snapshot))
    words = found["scheduler"]["insecure"]
    assert words.startswith("whoever reaches tcp://0.0.0.0:2345 can run code as its user; start it without --insecure")
    first, second, *_ = lists._whole(found).split("\n")
    assert first == f"insecure  {words}"
    assert second.startswith("scheduler ")


def test_where_only_its_own_machine_reaches_it_the_status_says_so_last(snapshot):
    found = status(insecure_at("tcp://127.0.0.1:2345", snapshot))
    *_, last = lists._whole(found).split("\n")
    assert last == f"insecure  {found['scheduler']['insecure']}"
    assert "whoever is on its machine" in last
