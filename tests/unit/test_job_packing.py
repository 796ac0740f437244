"""What is submitted as a durable job comes in parts that messages can carry."""

import pytest

from scaler.client.core.options import Options
from scaler.client.jobs import packing
from scaler.client.jobs.packing import JobIds, JobPacker
from scaler.graph import from_tuples
from scaler.protocol.messages import KEEP, Task


def test_parts_have_few_bytes_unless_a_single_row_has_more(monkeypatch):
    monkeypatch.setattr(packing, "PART_BYTES", 10_000)
    rows = [bytes(size) for size in [6_000] * 5 + [100] * 200 + [50_000, 50_000, 1]]
    parts = list(JobPacker(JobIds(60_000), Options(), None).calls(len, rows))
    tasks = [message for part in parts for message in part.messages if isinstance(message, Task)]
    assert sum(task.rows for task in tasks) == sum(part.rows for part in parts) == len(rows)
    assert all(sum(map(len, task.bodies)) <= 10_000 or task.rows == 1 for task in tasks)
    assert len(tasks) < 20


@pytest.mark.parametrize(
    ("written", "keeps"),
    [
        ({"a": (abs, 1), "b": (abs, -1)}, False),
        ({"a": (abs, 1), "b": (abs, "a")}, True),
        ({"a": (bytes, 100_000), "b": (len, "a"), "c": (abs, 1)}, True),
        ({"a": bytes(100_000), "b": (len, "a")}, False),
    ],
    ids=["apart", "a chain", "one that is apart among others", "a value that comes with the graph"],
)
def test_values_of_a_graph_are_kept_where_its_rows_need_each_other_s(written, keeps):
    part, *_ = JobPacker(JobIds(1 << 20), Options(), None).graph(from_tuples(written), list(written))
    assert [bool(message.flags & KEEP) for message in part.messages if isinstance(message, Task)] == [keeps]
