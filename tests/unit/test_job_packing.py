"""What is submitted as a durable job comes in parts that messages can carry."""

from scaler.client.core.options import Options
from scaler.client.jobs import packing
from scaler.client.jobs.packing import JobIds, JobPacker
from scaler.protocol.messages import Task


def test_parts_have_few_bytes_unless_a_single_row_has_more(monkeypatch):
    monkeypatch.setattr(packing, "PART_BYTES", 10_000)
    rows = [bytes(size) for size in [6_000] * 5 + [100] * 200 + [50_000, 50_000, 1]]
    parts = list(JobPacker(JobIds(60_000), Options(), None).calls(len, rows))
    tasks = [message for part in parts for message in part.messages if isinstance(message, Task)]
    assert sum(task.rows for task in tasks) == sum(part.rows for part in parts) == len(rows)
    assert all(sum(map(len, task.bodies)) <= 10_000 or task.rows == 1 for task in tasks)
    assert len(tasks) < 20
