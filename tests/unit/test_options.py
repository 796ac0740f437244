"""What `Client.with_options` takes: what a message can carry, and a clear word for anything else."""

import numpy as np
import pytest

from scaler.client.core.options import Options

PLAIN = Options.make()


@pytest.mark.parametrize(
    ("said", "field", "value"),
    [
        ({"priority": np.int64(3)}, "priority", 3),
        ({"priority": 2.0}, "priority", 2),
        ({"priority": -(2**31) + 1}, "priority", -(2**31) + 1),
        ({"retries": np.int64(2)}, "retries", 2),
        ({"retries": True}, "retries", 1),
        ({"timeout": np.float32(0.5)}, "timeout", 0.5),
        ({"timeout": float("inf")}, "timeout", 0.0),
        ({"timeout": 10**12}, "timeout", 0.0),
        ({"capabilities": "gpu"}, "capabilities", ("gpu",)),
        ({"capabilities": ["b", "a", "b"]}, "capabilities", ("a", "b")),
        ({"threads": 1}, "threads", 0),
        ({"threads": np.int32(4)}, "threads", 4),
    ],
)
def test_what_is_meant_is_taken(said, field, value):
    taken = getattr(PLAIN.changed(**said), field)
    assert taken == value
    assert type(taken) is type(value)


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ({"priority": 0.5}, TypeError, "priority must be a whole number, not 0.5"),
        ({"priority": "high"}, TypeError, "priority must be a whole number, not 'high'"),
        ({"priority": 10**12}, ValueError, "priority must be .* not 1,000,000,000,000"),
        ({"retries": 0.5}, TypeError, "retries must be a whole number"),
        ({"retries": -1}, ValueError, "retries must be 0 or more, not -1"),
        ({"timeout": 0}, ValueError, "timeout must be a positive number of seconds, not 0"),
        ({"timeout": float("nan")}, ValueError, "timeout must be a positive number of seconds, not nan"),
        ({"timeout": "long"}, TypeError, "timeout must be a number of seconds, not 'long'"),
        ({"capabilities": ["gpu", 1]}, TypeError, "capabilities must be names, not 1"),
        ({"threads": 0}, ValueError, "threads must be 1 or more, not 0"),
    ],
)
def test_what_makes_no_sense_is_said_where_it_is_written(said, error, words):
    with pytest.raises(error, match=words):
        PLAIN.changed(**said)


def test_priorities_of_views_add_up_as_far_as_a_message_can_say():
    most = PLAIN.changed(priority=2**31 - 1)
    assert most.changed(priority=1) is most
