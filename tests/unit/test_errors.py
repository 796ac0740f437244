import inspect
import pickle

import pytest

from scaler import errors

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_pickles_with_its_text(kind):
    error = pickle.loads(pickle.dumps(kind("task 3 (m.f): it is gone")))
    assert type(error) is kind
    assert str(error).strip() == "task 3 (m.f): it is gone"


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind is not errors.RemoteTraceback])
def test_the_tree_in_the_docstring_shows_every_error_below_scaler_error(kind):
    assert issubclass(kind, errors.ScalerError)
    assert kind.__name__ in errors.__doc__
    assert kind.__doc__


@pytest.mark.parametrize(
    ("kind", "standard"),
    [
        (errors.ConnectionFailed, ConnectionError),
        (errors.ConnectionTimeout, TimeoutError),
        (errors.HandshakeRefused, ConnectionError),
        (errors.ProtocolError, ValueError),
        (errors.ClientClosed, RuntimeError),
        (errors.ForkedClient, RuntimeError),
        (errors.AddressError, ValueError),
        (errors.AddressInUse, OSError),
        (errors.TaskTimeout, TimeoutError),
        (errors.SerializationError, pickle.PicklingError),
        (errors.CycleError, ValueError),
    ],
)
def test_code_that_knows_only_the_standard_exceptions_catches_them(kind, standard):
    assert issubclass(kind, standard)


def test_a_task_error_keeps_what_it_knows_of_the_original():
    error = pickle.loads(pickle.dumps(errors.TaskError("text", type_name="m.Odd", traceback="Traceback ...")))
    assert (error.type_name, error.traceback) == ("m.Odd", "Traceback ...")
