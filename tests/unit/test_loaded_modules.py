"""Which modules a program's tasks are likely to need."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from scaler.cluster.loaded_modules import needed_by_tasks

SITE = "/usr/lib/python3/site-packages/"


def modules(**contents: dict[str, Any]) -> dict[str, ModuleType]:
    """Modules by name, `__` for a dot; installed ones but for those whose names begin with `my` and the script."""
    made = {}
    for written, globals_ in contents.items():
        name = written if written.startswith("__") else written.replace("__", ".")
        module = made[name] = ModuleType(name)
        if name != "__main__":
            module.__file__ = f"{'/home/u/' if name.startswith('my') else SITE}{name}.py"
        vars(module).update(globals_)
    return made


def function_of(module: str) -> Callable[[], None]:
    """A function that says it is of a module."""

    def function() -> None: ...

    function.__module__ = module
    return function


def test_what_the_script_names_is_needed_with_all_that_is_loaded_of_it() -> None:
    numbers = ModuleType("numbers_lib")
    made = modules(numbers_lib={}, numbers_lib__linear={}, other={}, __main__={"np": numbers})
    assert needed_by_tasks(made) == ["numbers_lib", "numbers_lib.linear"]


def test_functions_classes_and_objects_name_their_packages() -> None:
    class Thing: ...

    Thing.__module__ = "things.thing"
    script = {"a": function_of("calls.sub"), "b": Thing()}
    made = modules(calls={}, things={}, things__thing={}, other={}, __main__=script)
    assert needed_by_tasks(made) == ["calls", "things", "things.thing"]


def test_what_does_not_say_what_it_is_names_nothing() -> None:
    class Silent(type):
        def __getattribute__(cls, name: str) -> Any:
            raise RuntimeError(name)

    class Thing(metaclass=Silent): ...

    class Lazy:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("nothing is here yet")

    nameless = ModuleType("nameless")
    del nameless.__name__
    script = {"a": Thing, "b": Lazy(), "c": nameless, "d": function_of("calls")}
    assert needed_by_tasks(modules(calls={}, __main__=script)) == ["calls"]


def test_packages_name_others_in_turn() -> None:
    frames = {"np": ModuleType("numbers_lib")}
    made = modules(numbers_lib={}, frames__io=frames, frames={}, other={}, __main__={"frames": ModuleType("frames")})
    assert needed_by_tasks(made) == ["numbers_lib", "frames.io", "frames"]


def test_the_programs_own_modules_are_looked_at_and_not_loaded() -> None:
    made = modules(frames={}, my_code={"f": ModuleType("frames")}, __main__={"m": ModuleType("my_code")})
    assert needed_by_tasks(made) == ["frames"]


def test_what_runs_the_program_is_left_out() -> None:
    made = modules(IPython={}, pytest={}, frames={}, __main__={"a": ModuleType("IPython"), "b": ModuleType("pytest")})
    assert needed_by_tasks(made) == []


def test_a_plain_program_needs_nothing() -> None:
    assert needed_by_tasks(modules(frames={}, __main__={"x": 1, "f": function_of("__main__")})) == []
