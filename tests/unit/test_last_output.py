"""The last lines of a worker's output: what is kept, who is asked for them, who is told, and what is believed."""

import json

import pytest
from simulator.scripted import FakeScheduler

from bench.synthetic import SyntheticCluster
from scaler.monitor.dashboard.content import last_output
from scaler.monitor.output import LastOutput, output_of, place_of
from scaler.monitor.top.looking import Looking
from scaler.monitor.top.screen import HEIGHT, WIDTH, draw, text_of
from scaler.monitor.watcher import Seen
from scaler.protocol.messages import DisconnectRequest, Query, QueryResult
from scaler.scheduler.core import relaying
from scaler.worker.last_lines import LINES, LastLines

HOSTILE = "\x1b[31mred\x07 \u202eevil"


def ask(fake: FakeScheduler, monitor: int, agent: int, number: int = 7) -> None:
    fake.say(monitor, Query(number, "output", agent=agent, slot=3))


def asked_of(fake: FakeScheduler, agent: int) -> list[Query]:
    return fake.heard(agent, Query)


def told(fake: FakeScheduler, monitor: int) -> list[QueryResult]:
    return fake.heard(monitor, QueryResult)


def test_what_is_kept_is_bounded() -> None:
    kept = LastLines()
    for number in range(10_000):
        kept.add(1, f"{number}" * 10_000)
        kept.add(1, "\n")
    lines = kept.told().split("\n")
    assert len(lines) == LINES
    assert lines[-1].endswith("9999")
    assert len(kept.told()) < 200_000


def test_a_question_goes_to_the_agent_and_its_answer_to_who_asked() -> None:
    fake = FakeScheduler(2, 2)
    first, second = fake.monitor(), fake.monitor()
    agent = next(iter(fake.core.state.agents))
    ask(fake, first, agent)
    ask(fake, second, agent)
    questions = asked_of(fake, agent)
    assert [question.slot for question in questions] == [3, 3]
    assert len({question.number for question in questions}) == 2
    fake.say(agent, QueryResult(questions[1].number, bodies=[b"{}"]))
    assert not told(fake, first)
    assert [(answer.number, bytes(answer.bodies[0])) for answer in told(fake, second)] == [(7, b"{}")]


def test_an_agent_is_not_believed_that_was_not_asked() -> None:
    fake = FakeScheduler(2, 2)
    monitor = fake.monitor()
    agent, other = fake.core.state.agents
    ask(fake, monitor, agent)
    [question] = asked_of(fake, agent)
    fake.say(other, QueryResult(question.number, bodies=[b"lie"]))
    fake.say(agent, QueryResult(question.number + 1, bodies=[b"lie"]))
    assert not told(fake, monitor)
    fake.say(agent, QueryResult(question.number, bodies=[b"x" * (relaying.LARGEST + 1)]))
    assert [bytes(answer.bodies[0]) for answer in told(fake, monitor)] == [b""]
    fake.say(agent, QueryResult(question.number, bodies=[b"again"]))
    assert not told(fake, monitor)


def test_nothing_is_kept_of_those_who_left() -> None:
    fake = FakeScheduler(2, 2)
    monitor = fake.monitor()
    agent, other = fake.core.state.agents
    ask(fake, monitor, agent)
    fake.say(agent, DisconnectRequest())
    assert [answer.error for answer in told(fake, monitor)] == [f"agent {agent} is gone"]
    ask(fake, monitor, agent, 8)
    assert told(fake, monitor)[-1].error == f"agent {agent} is not there"
    for number in range(50):
        ask(fake, monitor, other, number)
    assert len(fake.core.state.watching.asked) == relaying.MOST
    fake.say(monitor, DisconnectRequest())
    assert not fake.core.state.watching.asked


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (json.dumps({"stream": "stdout", "text": HOSTILE}).encode(), (("stdout", "?[31mred? ?evil"),)),
        (b'{"stream": "stdout", "text": 3}\n{"stream": ["x"]}\n[]\nnull\n\xff\xfe', ()),
        (b'{"stream": "<script>", "text": "x"}', ()),
        (b"[" * 100_000, ()),
    ],
)  # fmt: skip
def test_hostile_bytes_are_inert(body: bytes, lines: tuple[tuple[str, str], ...]) -> None:
    assert output_of(QueryResult(1, bodies=[body])).lines == lines


def test_a_long_answer_is_cut() -> None:
    body = "\n".join(json.dumps({"stream": "stderr", "text": "x" * 10_000}) for _ in range(1000)).encode()
    lines = output_of(QueryResult(1, bodies=[body])).lines
    assert len(lines) == 40
    assert {len(text) for _, text in lines} == {500}


def test_there_is_room_for_it_in_the_smallest_terminal() -> None:
    cluster = SyntheticCluster(agents=3, workers=4)
    snapshot = cluster.snapshot()
    looking = Looking(worker=snapshot.worker_id(0))
    place = place_of(looking.worker)
    assert place is not None
    lines = tuple(("stderr" if number % 2 else "stdout", f"line {number}") for number in range(40))
    seen = Seen(snapshot, True, snapshot.scheduler.time, "", outputs={place: LastOutput(lines)})
    screen = text_of(draw(looking, seen, "tcp://head:2345", WIDTH, HEIGHT, snapshot.scheduler.time)).split("\n")
    assert [line for line in screen if "line 3" in line] == ["| line 38", "! line 39"]
    assert any(line.strip().startswith("task") for line in screen)


def test_the_dashboard_shows_it_for_the_one_worker_that_is_open() -> None:
    snapshot = SyntheticCluster(agents=3, workers=4).snapshot()
    name = snapshot.worker_id(5)
    place = place_of(name)
    assert place is not None
    told = {place: LastOutput((("stderr", "<b>oh</b>"),))}
    assert last_output(snapshot, name, told) == {"name": ["stderr"], "value": ["<b>oh</b>"]}
    assert last_output(snapshot, name, {})["value"] == ["asked; while native code runs it cannot answer"]
    assert last_output(snapshot, name, {place: LastOutput(error="gone")})["value"] == ["gone"]
    for other in ("", name.split(".")[0] + ".", "700.1", "host-0002"):
        assert last_output(snapshot, other, told) == {"name": [], "value": []}
