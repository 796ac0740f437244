"""Arrays that are memory-mapped files, as they are pickled: by value, or as their file."""

import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.signals_at import signals_at_each_point

from scaler.errors import SerializationError
from scaler.serialize import mapped_files
from scaler.serialize.outofband import pack, unpack

numpy = pytest.importorskip("numpy")

SHAPE = (100, 50)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a file\nof two lines"
    numpy.arange(5000.0).reshape(SHAPE).tofile(path)
    return path


def mapped(path: Path, mode: str = "r+", **options: Any) -> Any:
    return numpy.memmap(path, "f8", mode, **{"shape": SHAPE, **options})


def passed(value: Any) -> Any:
    """The value on the other side, and whether it is the file."""
    packed = mapped_files.by_reference(lambda: pack(value))
    return unpack(packed.inband, [bytearray(buffer) for buffer in packed.buffers]), b"_opened" in packed.inband


VIEWS = {
    "whole": lambda a: a,
    "part": lambda a: a[10:20],
    "array": lambda a: numpy.asarray(a)[10:],
    "every second": lambda a: a[::2, 1::3],
    "backwards": lambda a: a[::-1],
    "transposed": lambda a: a.T,
    "plain, backwards": lambda a: numpy.asarray(a)[::-3, ::-1],
    "one": lambda a: a[7:8, 3:4],
    "other type": lambda a: a.view("i8"),
    "of no dimension": lambda a: a[5:6, 5].reshape(()),
    "a window": lambda a: numpy.lib.stride_tricks.sliding_window_view(a, 5, axis=0, writeable=True),
    "broadcast": lambda a: numpy.broadcast_to(a[:, :1], (len(a), 9)),
    "writable no more": lambda a: numpy.lib.stride_tricks.as_strided(a, writeable=False),
}


@pytest.mark.parametrize("options", [{}, {"offset": 8000, "shape": (40, 100)}, {"order": "F"}], ids=repr)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_by_reference_it_is_the_same_part_of_the_same_file(path: Path, view: Any, options: dict[str, Any]) -> None:
    here = view(mapped(path, **options))
    there, is_reference = passed(here)
    assert is_reference
    assert (there.shape, there.dtype, there.flags.writeable) == (here.shape, here.dtype, here.flags.writeable)
    assert (there == here).all()
    if here.flags.writeable:
        there[...] = 7
        assert (here == 7).all()
        assert (view(mapped(path, **options)) == 7).all()


def test_a_memmap_stays_one_and_an_array_too(path: Path) -> None:
    assert (type(passed(mapped(path))[0]), passed(mapped(path))[0].filename) == (numpy.memmap, str(path))
    assert type(passed(numpy.asarray(mapped(path)))[0]) is numpy.ndarray


@pytest.mark.parametrize(("mode", "becomes"), [("r", "r"), ("r+", "r+"), ("w+", "r+"), ("c", "c")])
def test_modes(path: Path, mode: str, becomes: str) -> None:
    here = mapped(path, mode)
    here_sum = here.sum()
    there, is_reference = passed(here)
    assert (is_reference, there.mode, there.sum()) == (True, becomes, here_sum)


def test_what_a_task_writes_into_a_private_mapping_is_its_own(path: Path) -> None:
    there, _ = passed(mapped(path, "c"))
    there[0, 0] = 99
    assert mapped(path)[0, 0] == 0


def test_a_private_mapping_that_was_written_to_travels_by_value(path: Path) -> None:
    here = mapped(path, "c")
    here[99, 49] = -1
    there, is_reference = passed(here)
    assert (is_reference, there[99, 49], mapped(path)[99, 49]) == (False, -1, 4999)


def test_a_file_that_was_removed_travels_by_value_whatever_has_its_name(path: Path) -> None:
    here = mapped(path)
    path.unlink()
    assert (passed(here)[1], passed(here)[0][99, 49]) == (False, 4999)
    path.write_bytes(bytes(40_000))
    assert (passed(here)[1], passed(here)[0][99, 49]) == (False, 4999)


def test_a_file_that_was_renamed_is_found(path: Path) -> None:
    here = mapped(path)
    path.rename(path.with_name("other"))
    path.write_bytes(bytes(40_000))
    there, is_reference = passed(here)
    assert (is_reference, there[99, 49]) == (True, 4999)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 100), None])
def test_what_is_not_that_file_any_more_is_an_error(path: Path, change: Any) -> None:
    here = mapped(path)
    pickled = mapped_files.by_reference(lambda: pack(here).inband)
    if change is None:
        path.rename(path.with_name("other"))
        path.write_bytes(bytes(40_000))
    else:
        change(path)
    with pytest.raises((SerializationError, FileNotFoundError), match="a file"):
        pickle.loads(pickled)


def test_another_host_has_another_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = mapped_files.by_reference(lambda: pack(mapped(path)).inband)
    monkeypatch.setattr(mapped_files, "boot_id", lambda: "another boot")
    with pytest.raises(SerializationError, match="is another one here"):
        pickle.loads(pickled)


def test_it_is_passed_inside_of_other_values_and_by_lambdas(path: Path) -> None:
    here = mapped(path)
    (there,), is_reference = passed([here])
    assert is_reference
    there[0, 0] = 5
    function, is_reference = passed(lambda: here.sum())
    assert (is_reference, function()) == (True, here.sum())


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_by_value_its_memory_is_not_copied_into_the_pickle(path: Path, mode: str, order: str) -> None:
    here = mapped(path, mode, order=order)
    packed = pack(mapped(path, mode, order=order))
    assert [buffer.nbytes for buffer in packed.buffers] == [here.nbytes]
    there = unpack(packed.inband, [bytearray(packed.buffers[0])])
    assert (type(there), there.filename) == (numpy.memmap, None)
    assert (there == here).all()
    there[0, 0] = 99
    assert here[0, 0] == 0


@pytest.mark.parametrize("value", [lambda path: numpy.ones(2000), lambda path: mapped(path)[:0], lambda path: 1.0])
def test_everything_else_is_left_alone(path: Path, value: Any) -> None:
    assert mapped_files.by_reference(lambda: pack(value(path))) == pack(value(path))


def test_elsewhere_what_would_be_written_into_the_file_cannot_be_written(path: Path) -> None:
    for here in (mapped(path), numpy.asarray(mapped(path))[::2]):
        packed = mapped_files.read_only(partial(pack, here))
        there = unpack(packed.inband, [bytearray(buffer) for buffer in packed.buffers])
        assert type(there) is type(here)
        assert (there == here).all()
        with pytest.raises(ValueError, match="read-only"):
            there[0] = 1


@pytest.mark.parametrize("mode", ["r", "c"])
def test_elsewhere_what_would_not_be_in_the_file_can_be_written(path: Path, mode: str) -> None:
    packed = mapped_files.read_only(lambda: pack(mapped(path, mode)))
    there = unpack(packed.inband, [bytearray(buffer) for buffer in packed.buffers])
    there[0] = 1


def test_a_signal_at_any_point_leaves_a_thread_that_passes_values(path: Path) -> None:
    here = mapped(path)

    def look() -> None:
        assert b"_opened" not in pack(here).inband

    assert signals_at_each_point(lambda: mapped_files.by_reference(lambda: None), look) > 10
