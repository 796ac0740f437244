"""Records are what dataclasses with slots are, but for how they are made."""

from dataclasses import field, fields, replace

import pytest

from scaler.common.records import record


@record
class Point:
    """A record with a default that is made anew each time."""

    x: int
    tags: list[str] = field(default_factory=list)


@record
class Named(Point):
    """A record that has one more field than another."""

    name: str = ""


def test_a_record_is_compared_by_its_fields_and_its_type() -> None:
    assert Point(1, ["a"]) == Point(1, ["a"])
    assert Point(1) != Point(2)
    assert Point(1) != Named(1)
    assert Named(1, name="a") != Named(1, name="b")


def test_a_record_shows_its_fields() -> None:
    assert repr(Named(1, ["t"], "n")) == "Named(x=1, tags=['t'], name='n')"


def test_a_record_has_slots_and_no_hash() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.y = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(point)


def test_the_tools_for_dataclasses_know_records() -> None:
    assert [f.name for f in fields(Named)] == ["x", "tags", "name"]
    assert replace(Point(1), x=3) == Point(3)
    assert Point(1).tags is not Point(1).tags
