"""What the service in Symphony is given to call. It travels by value, so a service needs no more than cloudpickle.

Nothing outside of the standard library and cloudpickle may be named at the top of this module or by its globals. Where
the package is installed beside the service, rows run inside a task's context (`inside`), so that they may wait for
tasks of their own.
"""

#: how a row went: its pickled value; an error record; (type, message, traceback, pickled exception or nothing); text
VALUE, RECORD, RAISED, UNENCODABLE = "value", "record", "raised", "unencodable"


def run_there(call, about):  # type: ignore[no-untyped-def]  # its annotations would travel as well
    """Run a pickled (function, args, kwargs); returns (how it went, ...) and raises nothing."""
    import traceback

    import cloudpickle

    try:
        from scaler.symphony import inside
    except ImportError:
        pass
    else:
        return inside.run(call, about)
    try:
        function, args, kwargs = cloudpickle.loads(call)
        value = function(*args, **kwargs)
    except BaseException as error:
        kind = type(error)
        try:
            message = str(error)
        except Exception:
            message = ""
        try:
            pickled = cloudpickle.dumps(error)
            cloudpickle.loads(pickled)
        except BaseException:
            pickled = b""
        name = kind.__qualname__ if kind.__module__ == "builtins" else kind.__module__ + "." + kind.__qualname__
        return "raised", name, message, "".join(traceback.format_exception(error)), pickled
    try:
        return "value", cloudpickle.dumps(value)
    except Exception as error:
        return "unencodable", type(error).__name__ + ": " + str(error)
