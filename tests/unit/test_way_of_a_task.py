"""The documentation's way of a task is that of the code: each station is one function, and there are few."""

import importlib
import re
from functools import reduce
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
#: stations, at most: more is nothing that anybody keeps in mind
STATIONS = 14


def test_each_station_of_a_task_is_a_function_that_there_is() -> None:
    part = PAGE.read_text().partition("<!-- stations -->")[2].partition("<!-- end of stations -->")[0]
    names = re.findall(r"^\d+\. `(scaler\.[\w.]+)`", part, re.MULTILINE)
    assert 10 <= len(names) <= STATIONS
    for name in names:
        parts = name.split(".")
        at = next(i for i, word in enumerate(parts) if word[0].isupper() or i == len(parts) - 1)
        module = importlib.import_module(".".join(parts[:at]))
        assert callable(reduce(getattr, parts[at:], module)), name
