"""scaler_top's own part of the terminal: keys come in, lines go out, and snapshots come from another thread."""

import asyncio
import sys
import threading

import pytest
from textual import events
from textual.pilot import Pilot

from scaler.cli import top
from scaler.cli.command import call
from scaler.monitor import Seen, Snapshot
from scaler.monitor.synthetic import SyntheticCluster
from scaler.monitor.top.app import TopApp

NOW = 1_700_000_000.0


def seen(snapshot: Snapshot | None, version: int = 1, is_connected: bool = True) -> Seen:
    return Seen(snapshot, is_connected, NOW, "", version)


def shown(app: TopApp) -> list[str]:
    """What the terminal shows."""
    return [app.view.render_line(y).text.rstrip() for y in range(app.view.size.height)]


def run(steps: object, size: tuple[int, int] = (120, 40)) -> TopApp:
    """Runs the program under a test; snapshots come from a thread, as a watcher's do."""
    app = TopApp("tcp://127.0.0.1:2345", clock=lambda: NOW)
    cluster = SyntheticCluster(agents=3, workers=20)

    def arrive(is_connected: bool = True) -> Snapshot:
        snapshot = cluster.snapshot()
        thread = threading.Thread(target=app.arrived, args=(seen(snapshot, snapshot.number, is_connected),))
        thread.start()
        thread.join()
        return snapshot

    async def main() -> None:
        assert callable(steps)
        async with app.run_test(size=size) as pilot:
            await steps(app, pilot, arrive)

    asyncio.run(main())
    return app


def test_what_arrives_is_shown_and_keys_act_on_it() -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        assert callable(arrive)
        assert any("waiting for the first snapshot" in line for line in shown(app))
        snapshot = arrive()
        await pilot.pause()
        assert any(line.startswith("Total 60 worker(s)") for line in shown(app))
        await pilot.press("m")
        head = next(line for line in shown(app) if line.startswith("worker "))
        assert "[rss]" in head
        largest = max(range(60), key=snapshot.workers.memory.__getitem__)
        assert any(line.startswith(f"{snapshot.workers.pids[largest]}|") for line in shown(app))
        await pilot.press("2")
        assert any(line.startswith("Total 3 agent(s)") for line in shown(app))
        await pilot.press("slash", *"host-0002", "enter")
        assert any("Total 3 agent(s), 1 shown" in line for line in shown(app))
        arrive(is_connected=False)
        await pilot.pause()
        assert any("no scheduler since" in line for line in shown(app))

    run(steps)


def test_names_are_shown_as_they_are_and_mean_nothing() -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        assert callable(arrive)
        await pilot.press("3")
        snapshot = arrive()
        names = ("[bold red]x[/]", "[@click=app.quit]y[/]", *snapshot.functions.names[2:])
        snapshot.view.functions.names = names
        app.arrived(seen(snapshot, 9))
        await pilot.pause()
        await pilot.press("n")
        text = "\n".join(shown(app))
        assert names[0] in text
        assert names[1] in text

    run(steps)


def test_another_size_is_another_screen() -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        assert callable(arrive)
        arrive()
        for columns, lines in [(80, 24), (20, 5), (60, 15), (250, 80)]:
            await pilot.resize_terminal(columns, lines)
            await pilot.pause()
            text = shown(app)
            assert len(text) == lines
            assert ("needs 60x15: enlarge" in text) == (columns == 20)
            assert any(line.startswith("Total 60") for line in text) == (columns != 20)

    run(steps)


def test_the_wheel_moves_the_chosen_row_and_pasted_text_goes_to_the_filter() -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        assert callable(arrive)
        arrive()
        app.view.on_mouse_scroll_down()
        app.view.on_mouse_scroll_down()
        app.view.on_mouse_scroll_up()
        assert app.view.looking.cursor == 3
        app.view.on_paste(events.Paste("qqq"))
        assert app.view.looking.by == "cpu"
        await pilot.press("slash")
        app.view.on_paste(events.Paste("host\x1b[2J\n-0003"))
        assert app.view.looking.text == "host[2J-0003"

    run(steps)


@pytest.mark.parametrize("key", ["Q", "ctrl+c", "ctrl+q"])
def test_a_key_ends_the_program(key: str) -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        await pilot.press(key)

    assert run(steps).return_code == 0


def test_what_arrives_before_there_is_a_terminal_is_shown_when_there_is() -> None:
    app = TopApp("tcp://127.0.0.1:2345", clock=lambda: NOW)
    app.arrived(seen(SyntheticCluster(1, 2).snapshot()))

    async def main() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            assert any(line.startswith("Total 2 worker(s)") for line in shown(app))

    asyncio.run(main())


# ---- the command ---------------------------------------------------------------------------------------------------
def test_without_textual_the_command_says_in_one_line_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setattr(top, "_has_terminal", lambda: True)
    assert call(top.command, "scaler_top", ["ipc:///tmp/nothing"]) == 1
    said = capsys.readouterr().err
    assert "pip install scaler[top]" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ipc:///tmp/nothing-is-there"], 1, "no scheduler is there"),
        (["tcp://127.0.0.1:1"], 1, "nothing listens"),
        (["127.0.0.1:2345"], 2, "is no address"),
        (["ipc://relative"], 2, "the form is ipc:///path"),
        ([], 2, "ADDRESS"),
        (["--interval", "0", "ipc:///tmp/x"], 2, "interval must be at least 0.1"),
        (["--view", "tasks", "ipc:///tmp/x"], 2, "workers"),
    ],
)
@pytest.mark.parametrize("way", [[], ["--once"], ["--json"]], ids=str)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str], code: int, words: str, way: list[str], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)
    monkeypatch.setattr(top, "_has_terminal", lambda: not way)
    assert call(top.command, "scaler_top", [*way, *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
