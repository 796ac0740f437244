"""The options of the programs: where they come from, what they refuse, and what `-h` says."""

import contextlib
import dataclasses
import inspect
import json
import pickle
import pwd
import subprocess
import sys
import types

import pytest
from click.testing import CliRunner
from dask.utils import parse_bytes

import scaler
from scaler import SchedulerClusterCombo, errors
from scaler.cli import cluster, logs, provision, scheduler, symphony, top, ui
from scaler.cli import commands as cli_commands
from scaler.cli import main as umbrella
from scaler.cli.command import call, make_command
from scaler.common.attempts import Attempts
from scaler.common.processors import granted_cores
from scaler.config import (
    AgentConfig,
    DashboardConfig,
    MetricsConfig,
    OptionError,
    ProvisionConfig,
    SchedulerConfig,
    TopConfig,
    from_plain_values,
    plain_values,
    settings,
)
from scaler.provisioning.manifests import PodOptions

ADDRESS = "tcp://127.0.0.1:2345"


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch, tmp_path):
    """No option comes from the machine that runs the tests."""
    for config in (SchedulerConfig, AgentConfig, TopConfig):
        for setting in settings(config):
            monkeypatch.delenv(setting.env_name, raising=False)
    monkeypatch.delenv("SCALER_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def parse():
    """Parses a command line and returns the configuration that the program would run with."""

    def parse(config, section, *arguments):
        seen = []
        command = make_command(section, config, "Help.", lambda value: seen.append(value) or 0)
        assert call(command, section, arguments) == 0
        return seen[0]

    return parse


@pytest.fixture
def complaint(capsys):
    """Runs a program with a mistake and returns the one line it prints before it exits with 2."""

    def complaint(command, program, *arguments):
        assert call(command, program, arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return err.strip()

    return complaint


def test_defaults_of_a_command_line_are_those_of_the_class(parse):
    assert parse(SchedulerConfig, "scheduler", ADDRESS) == SchedulerConfig(ADDRESS)
    assert parse(AgentConfig, "cluster", ADDRESS) == AgentConfig(ADDRESS)


def test_every_option_can_be_a_flag(parse):
    assert parse(
        AgentConfig,
        "cluster",
        *("-n", "3", "--name", "box", "--capabilities", "gpu, big", "--event-loop", "builtin"),
        *("--heartbeat-interval", "0.5", "--max-message-bytes", "70000"),
        *("--key-file", "key", "--insecure", "--log-level", "debug", "--log-path", "log", ADDRESS),
    ) == AgentConfig(
        ADDRESS,
        workers=3,
        name="box",
        capabilities=("gpu", "big"),
        event_loop="builtin",
        heartbeat_interval=0.5,
        max_message_bytes=70000,
        key_file="key",
        insecure=True,
        log_level="DEBUG",
        log_path="log",
    )


def test_flags_go_before_the_environment_and_that_before_the_file(parse, monkeypatch, tmp_path):
    file = tmp_path / "scaler.toml"
    file.write_text(
        'address = "tcp://file:1"\nlog_level = "ERROR"\n[cluster]\nworkers = 5\nheartbeat_interval = 5\nname = "file"\n'
    )
    monkeypatch.setenv("SCALER_CONFIG", str(file))
    monkeypatch.setenv("SCALER_HEARTBEAT_INTERVAL", "6")
    monkeypatch.setenv("SCALER_NAME", "environment")
    config = parse(AgentConfig, "cluster", "--name", "flag")
    assert (config.address, config.log_level, config.workers) == ("tcp://file:1", "ERROR", 5)
    assert (config.heartbeat_interval, config.name) == (6, "flag")


def test_the_address_may_come_from_the_environment(parse, monkeypatch):
    monkeypatch.setenv("SCALER_ADDRESS", ADDRESS)
    assert parse(SchedulerConfig, "scheduler").address == ADDRESS


def test_switches_and_lists_come_from_a_file_and_the_environment(parse, monkeypatch, tmp_path):
    file = tmp_path / "scaler.toml"
    file.write_text('[scheduler]\nprotected = false\n[cluster]\ncapabilities = ["gpu", "big"]\n')
    assert parse(SchedulerConfig, "scheduler", "--config", str(file), ADDRESS).protected is False
    assert parse(AgentConfig, "cluster", "--config", str(file), ADDRESS).capabilities == ("gpu", "big")
    monkeypatch.setenv("SCALER_PROTECTED", "0")
    assert parse(SchedulerConfig, "scheduler", ADDRESS).protected is False


def test_a_section_goes_before_what_is_said_for_every_program(parse, tmp_path):
    file = tmp_path / "scaler.toml"
    file.write_text('log_level = "ERROR"\nworkers = 2\n[scheduler]\nlog_level = "DEBUG"\n')
    assert parse(SchedulerConfig, "scheduler", "--config", str(file), ADDRESS).log_level == "DEBUG"
    config = parse(AgentConfig, "cluster", "--config", str(file), ADDRESS)
    assert (config.log_level, config.workers) == ("ERROR", 2)


def test_the_users_own_file_is_read_and_one_in_the_current_directory_is_not(parse, monkeypatch, tmp_path):
    (tmp_path / "scaler.toml").write_text("insecure = true\n")
    monkeypatch.chdir(tmp_path)
    assert parse(AgentConfig, "cluster", ADDRESS) == AgentConfig(ADDRESS)
    (tmp_path / "config" / "scaler").mkdir(parents=True)
    (tmp_path / "config" / "scaler" / "config.toml").write_text("workers = 9\n")
    assert parse(AgentConfig, "cluster", ADDRESS).workers == 9


@pytest.mark.parametrize(("option", "value"), [("--agents", "-1"), ("--workers", "0"), ("--agents", str(2**64))])
def test_manifests_are_of_hosts_that_can_be(complaint, option, value):
    said = complaint(umbrella.command, "scaler", "kubernetes-manifests", "--image", "x", option, value)
    assert f"Invalid value for '{option}'" in said


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--tag", "Bad_Tag", "tag must be 1 to 40 of the characters a-z, 0-9 and -, not 'Bad_Tag'"),
        ("--tag", "1st", "tag must begin with a letter in Kubernetes, not '1st'"),
        ("--namespace", "My Lab", "namespace must be at most 63 of the characters a-z, 0-9 and -, not 'My Lab'"),
        ("--memory", "lots", "memory must be an amount like 4Gi or 500M, not 'lots'"),
        ("--cpu", "-1", "cpu must be an amount like 2 or 500m, not '-1'"),
    ],
)
def test_manifests_are_of_what_kubernetes_takes(complaint, option, value, words):
    assert words in complaint(umbrella.command, "scaler", "kubernetes-manifests", "--image", "x", option, value)


@pytest.mark.parametrize("amount", ["4Gi", "500M", "1.5Gi", "2e9", "128974848", ".5"])
def test_amounts_are_said_as_kubernetes_has_them(amount):
    assert PodOptions("x", memory=amount).memory == amount


def test_the_list_of_commands_says_of_each_in_full_what_it_does():
    listed = " ".join(CliRunner().invoke(umbrella.command, ["-h"], terminal_width=80).output.split())
    assert "..." not in listed.partition(" Commands: ")[2]
    for command in umbrella.command.commands.values():
        assert command.short_help in listed


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("exclusive = true", "exclusive is for hosts with capabilities, and none are named"),
        ("capabilities = [1]", "capabilities must be a list of texts, not [1]"),
        ("agent_options = [1]", "agent_options must be a list of texts, not [1]"),
        ('agent_options = "--slots 5"', 'agent_options must be a list of texts, like ["--slots", "5"], not'),
        ('[options]\ndirectives = "-x"', 'directives must be a list of texts, like ["-x"], not'),
        ("[option]\ndirectives = []", "no option 'option', did you mean 'options'?"),
        ("[options]\ndirectives = [1]", "directives must be a list of texts, not [1]"),
        (f"walltime = {10**400}", "walltime must be at most 1,000,000,000, not"),
        (f"minimum = {'9' * 5000}", "cannot read"),
        ("[options]\ntimeout = -1", "timeout must be at least 0.05, not -1"),
        ("[options]\ntimeout = nan", "timeout must be at least 0.05, not nan"),
    ],
)
def test_a_mistake_about_hosts_is_one_line(complaint, tmp_path, content, text):
    config = tmp_path / "provision.toml"
    config.write_text(f'address = "tcp://head:2345"\nprovider = "slurm"\n{content}\n')
    assert text in complaint(provision.command, "scaler_provision", "--print", str(config))


def test_how_hosts_are_provided_is_said_by_flags_the_environment_and_the_file_in_this_order(
    monkeypatch, tmp_path, capsys
):
    config, usual = tmp_path / "provision.toml", tmp_path / "config.toml"
    config.write_text('address = "tcp://head:2345"\nprovider = "slurm"\nworkers = 2\ntag = "file"\n')
    usual.write_text('insecure = true\nworkers = 9\n[scheduler]\naddress = "tcp://x:1"\n')
    monkeypatch.setenv("SCALER_WORKERS", "3")
    monkeypatch.setenv("SCALER_WALLTIME", "60")
    monkeypatch.setenv("SCALER_CONFIG", str(usual))
    flags = ["--walltime", "120", "--agent-options", "--name a=b --drain-grace 1", "--capabilities", "gpu,big"]
    assert call(provision.command, "scaler_provision", [str(config), "--print", *flags]) == 0
    script = capsys.readouterr().out
    for words in (
        " tcp://head:2345 --workers 3 ", " --name a=b --drain-grace 1 ", "--job-name=file-1\n", "--time=2:00\n",
        " --insecure ", "gpu,big",
    ):  # fmt: skip
        assert words in script


@pytest.mark.parametrize(
    ("flags", "variables", "words"),
    [
        (["--minimum", "-1"], {}, "scaler_provision: minimum must be at least 0, not -1 ("),
        ([], {"SCALER_MINIMUM": "-1"}, "not -1 (from the environment: SCALER_MINIMUM)"),
        ([], {"SCALER_INSECURE": "perhaps"}, "(from the environment: SCALER_INSECURE)"),
        (["--insecure", "--no-keep"], {}, "provision.toml: idle_time must be at least 0.1, not 0"),
    ],
)
def test_a_mistake_about_hosts_is_where_it_was_made(complaint, monkeypatch, tmp_path, flags, variables, words):
    config = tmp_path / "provision.toml"
    config.write_text('address = "tcp://head:2345"\nprovider = "slurm"\nidle_time = 0\n')
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert words in complaint(provision.command, "scaler_provision", "--print", *flags, str(config))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "*", "head:2345,tcp://0.0.0.0"])
def test_an_address_that_hosts_cannot_connect_to_is_refused_before_any_is_asked_for(complaint, tmp_path, host):
    config = tmp_path / "provision.toml"
    config.write_text(f'address = "tcp://{host}:2345"\nprovider = "slurm"\n')
    said = complaint(provision.command, "scaler_provision", "--print", str(config))
    assert "address is what hosts connect to" in said
    assert "write the name or address of the scheduler's host" in said


def test_what_a_provider_needs_and_is_not_there_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "kr8s", None)
    config = tmp_path / "provision.toml"
    config.write_text('address = "tcp://head:2345"\nprovider = "kubernetes"\n[options]\nimage = "x"\n')
    assert call(provision.command, "scaler_provision", [str(config)]) == 1
    assert capsys.readouterr().err == (
        "scaler_provision: hosts from Kubernetes need kr8s: pip install 'scaler[kubernetes]'\n"
    )


def test_what_hosts_would_be_asked_for_with_is_written_or_one_line_says_why_not(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SCALER_KEY", "insecure")
    config = tmp_path / "provision.toml"
    config.write_text('address = "tcp://head:2345"\nprovider = "slurm"\n')
    for arguments in (["kubernetes-manifests", "--image", "x"], ["provision", "--print", str(config)]):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert call(umbrella.command, "scaler", arguments) == 1
        assert "the output can't be written: No space left on device" in capsys.readouterr().err


def test_manifests_have_no_key_that_nobody_else_has(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert call(umbrella.command, "scaler", ["kubernetes-manifests", "--image", "x"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "there is no key file and none could be written: name one with --key-file" in said.err


def test_a_user_without_a_home_has_no_file(parse, monkeypatch, tmp_path):
    def nobody(_number):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    (tmp_path / "~" / ".config" / "scaler").mkdir(parents=True)
    (tmp_path / "~" / ".config" / "scaler" / "config.toml").write_text("workers = 9\n")
    monkeypatch.chdir(tmp_path)
    assert parse(AgentConfig, "cluster", ADDRESS) == AgentConfig(ADDRESS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Missing argument 'ADDRESS'"),
        (["-n", "0", ADDRESS], "workers must be at least 1, not 0"),
        (["-n", "many", ADDRESS], "'many' is not a valid integer"),
        (["--event-loop", "twisted", ADDRESS], "'twisted' is not one of"),
        (["--log-level", "chatty", ADDRESS], "'chatty' is not one of"),
        (["--spill-direktory", "/d", ADDRESS], "Did you mean '--spill-directory'?"),
        (["--config", "/no/such/file", ADDRESS], "there is no configuration file /no/such/file"),
        ([""], "address must not be empty"),
    ],
)
def test_a_mistake_is_one_line(complaint, arguments, text):
    assert text in complaint(cluster.command, "scaler_cluster", *arguments)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[cluster]\nwrokers = 1\n", "no option 'wrokers' under [cluster]"),
        ("wrokers = 1\n", "no option 'wrokers', did you mean 'workers'?"),
        ("xyzzy = 1\n", "no option 'xyzzy', only"),
        ("[clustr]\nworkers = 1\n", "no section [clustr], did you mean [cluster]?"),
        ("[xyzzy]\nworkers = 1\n", "no section [xyzzy], only [scheduler], [cluster], "),
        ("[workers]\nx = 1\n", "workers must be a whole number"),
        ("cluster = 3\n", "expected a table under [cluster]"),
        ("workers = \n", "cannot read the configuration file"),
        ("[cluster]\nworkers = 0\n", "workers must be at least 1, not 0 (from the configuration file {file})"),
        ('[cluster]\nworkers = "many"\n', "'many' is not a valid integer (from the configuration file {file})"),
        ("[cluster]\nworkers = [1]\n", "workers must be a whole number, not [1]"),
        ("[cluster]\nworkers = 8.5\n", "workers must be a whole number, not 8.5"),
        ("[cluster]\nworkers = true\n", "workers must be a whole number, not True"),
        (f"[cluster]\nwalltime = {10**400}\n", "walltime must be a number, not one as large as this"),
        (f"[cluster]\nworkers = {'9' * 5000}\n", "cannot read the configuration file"),
        ("[cluster]\nworkers = " + str(2**64), "workers must be at most 100,000, not 18,446,744,073,709,551,616"),
        ("workers = " + "[" * 100_000, "cannot read the configuration file {file}: its values are nested too deep"),
        ('[cluster]\nkey_file = "a\\u0000"\n', "key_file has a character that no text of an option may have, 'a\\x00'"),
        ('[cluster]\ncapabilities = ["a\\u0000"]\n', "capabilities has a character that no text of an option may have"),
        ("heartbeat_interval = 2026-01-01\n", "heartbeat_interval must be a number, not"),
        ("[cluster]\ninsecure = 3\n", "insecure must be true or false, not 3"),
        ("log_level = ['INFO']\n", "log_level must be one of DEBUG, INFO, WARNING, ERROR, not ['INFO']"),
        ("log_level = 5\n", "log_level must be one of DEBUG, INFO, WARNING, ERROR, not 5"),
        ("[cluster]\nlog_path = {a = 1}\n", "log_path must be a text, not {'a': 1}"),
        ("key_file = 1\n", 'key_file must be a text, not 1: "1"'),
        ("[cluster]\nname = 1_000.5\n", 'name must be a text, not 1000.5: "1000.5"'),
        ("[cluster]\nlog_path = true\n", "log_path must be a text, not True"),
        ("[cluster]\ncapabilities = 3\n", "capabilities must be a list of texts, not 3"),
        ("[cluster]\ncapabilities = [3]\n", "is not a list of names (from the configuration file {file})"),
        ('[cluster]\nevent_loop = "twisted"\n', "'twisted' is not one of"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(complaint, tmp_path, content, text):
    file = tmp_path / "scaler.toml"
    file.write_text(content)
    said = complaint(cluster.command, "scaler_cluster", "--config", str(file), ADDRESS)
    assert text.replace("{file}", str(file)) in said
    assert str(file) in said


def test_a_bad_value_in_the_environment_names_the_variable(complaint, monkeypatch):
    monkeypatch.setenv("SCALER_WORKERS", "-2")
    assert "SCALER_WORKERS" in complaint(cluster.command, "scaler_cluster", ADDRESS)
    monkeypatch.setenv("SCALER_WORKERS", "many")
    said = complaint(cluster.command, "scaler_cluster", ADDRESS)
    assert "'many' is not a valid integer (from the environment: SCALER_WORKERS)" in said
    said = complaint(cluster.command, "scaler_cluster", ADDRESS, "-n", "many")
    assert "is not a valid integer (scaler_cluster -h" in said


@pytest.mark.parametrize(
    ("raised", "code"), [(errors.AddressError("bad"), 2), (errors.AddressInUse("taken"), 1), (KeyboardInterrupt(), 130)]
)
def test_what_a_program_raises_becomes_its_exit_code(raised, code, capsys):
    def run(config):
        raise raised

    assert call(make_command("cluster", AgentConfig, "Help.", run), "scaler_cluster", [ADDRESS]) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("command", "config"), [(scheduler.command, SchedulerConfig), (cluster.command, AgentConfig)])
def test_help_shows_every_option_with_its_variable_and_default(command, config):
    text = " ".join(CliRunner().invoke(command, ["-h"], terminal_width=120).output.split())
    for setting in settings(config):
        assert setting.option.help.split(";")[0] in text
        assert setting.env_name in text
        if setting.kind in (int, float) and setting.default is not None:
            assert f"default: {setting.default}" in text


def test_the_umbrella_has_every_program(capsys):
    assert call(umbrella.command, "scaler", ["--version"]) == 0
    assert scaler.__version__ in capsys.readouterr().out
    for program in ("scheduler", "cluster", "worker"):
        assert call(umbrella.command, "scaler", [program, "-h"]) == 0
        assert "ADDRESS" in capsys.readouterr().out


@pytest.mark.parametrize("module", [cluster, provision, scheduler, symphony, top, ui])
def test_each_program_says_its_version(module, capsys):
    assert call(module.command, "scaler_it", ["--version"]) == 0
    assert capsys.readouterr().out == f"scaler_it, version {scaler.__version__}\n"


HELP = [["-h"], ["--version"], ["tasks", "-h"], ["scheduler", "-h"], ["provision", "--version"], ["journal", "-h"]]


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_that_can_not_be_written_is_one_line(arguments, monkeypatch, capsys):
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert call(umbrella.command, "scaler", arguments) == 1
    assert capsys.readouterr().err == "scaler: the output can't be written: No space left on device\n"


def test_an_error_of_a_program_is_no_output_that_can_not_be_written():
    def run(config):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        call(make_command("cluster", AgentConfig, "Help.", run), "scaler_cluster", [ADDRESS])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["workers", "--sort", "nope"], "workers have no column 'nope' to sort by: they have "),
        (["explain", "abc"], "'abc' names no task: write CLIENT:TASK"),
        (["story", "abc"], "'abc' names no task: write CLIENT:TASK"),
    ],
)
def test_what_no_cluster_can_answer_is_a_wrong_call(complaint, arguments, words):
    assert words in complaint(umbrella.command, "scaler", *arguments, "tcp://127.0.0.1:1")


#: commands that ask a scheduler or tell it something, with what else they need
ASKING = [
    *([name] for name in ("status", "agents", "workers", "clients", "functions", "objects", "tasks", "jobs")),
    *([name, "1:1"] for name in ("explain", "story", "cancel", "drain")),
    *([name, "job"] for name in ("attach", "results", "delete")),
    ["hand-over"],
]


@pytest.fixture
def reached(monkeypatch):
    """Runs a command and returns how it would reach its scheduler, and the command's own argument."""

    def reached(name, *arguments):
        seen = []
        command = umbrella.command.commands[name]
        monkeypatch.setattr(command, "callback", lambda **said: seen.append(said) or 0)
        assert call(umbrella.command, "scaler", [name, *arguments]) == 0
        return {each: seen[0][each] for each in ("address", "key_file", "insecure")}

    return reached


@pytest.mark.parametrize("arguments", ASKING, ids=lambda arguments: arguments[0])
def test_a_command_that_asks_a_cluster_takes_where_it_is_from_the_environment_and_the_file(
    reached, monkeypatch, tmp_path, arguments
):
    (tmp_path / "scaler.toml").write_text(f'address = "{ADDRESS}"\nkey_file = "k"\ninsecure = true\nworkers = 3\n')
    monkeypatch.setenv("SCALER_CONFIG", str(tmp_path / "scaler.toml"))
    assert reached(*arguments) == {"address": ADDRESS, "key_file": "k", "insecure": True}
    monkeypatch.setenv("SCALER_INSECURE", "0")
    monkeypatch.setenv("SCALER_ADDRESS", "tcp://head:1")
    assert reached(*arguments) == {"address": "tcp://head:1", "key_file": "k", "insecure": False}
    monkeypatch.setenv("SCALER_INSECURE", "1")
    assert reached(*arguments, "--no-insecure", "--key-file", "l") == {
        "address": "tcp://head:1", "key_file": "l", "insecure": False,
    }  # fmt: skip


def test_hosts_to_drain_are_told_from_the_address_wherever_it_stands(monkeypatch, complaint):
    told = []

    @contextlib.contextmanager
    def commands(address, key_file, insecure):
        yield types.SimpleNamespace(drain=lambda jobs: told.append((address, *jobs)) or 1)

    monkeypatch.setattr(cli_commands, "_commands", commands)
    assert "Missing argument 'ADDRESS'" in complaint(umbrella.command, "scaler", "drain", "4711")
    assert "Missing argument 'JOB|AGENT...'" in complaint(umbrella.command, "scaler", "drain", ADDRESS)
    assert "more than one address" in complaint(umbrella.command, "scaler", "drain", ADDRESS, "4711", "tcp://head:1")
    assert call(umbrella.command, "scaler", ["drain", ADDRESS, "4711", "4712"]) == 0
    monkeypatch.setenv("SCALER_ADDRESS", "tcp://head:1")
    assert call(umbrella.command, "scaler", ["drain", "4711"]) == 0
    assert told == [(ADDRESS, "4711"), (ADDRESS, "4712"), ("tcp://head:1", "4711")]
    del told[:]
    assert call(umbrella.command, "scaler", ["drain", "4711", ADDRESS]) == 0  # never those of another cluster
    assert told == [(ADDRESS, "4711")]


def test_who_is_to_lead_has_to_be_named(monkeypatch, complaint):
    monkeypatch.setenv("SCALER_ADDRESS", ADDRESS)
    assert "Missing argument 'ADDRESS'" in complaint(umbrella.command, "scaler", "promote")


@pytest.mark.parametrize("arguments", [["jobs"], ["attach", "j"], ["results", "j"], ["delete", "j"], ["cancel", "j"]])
def test_commands_about_jobs_look_once_for_a_scheduler_that_is_not_there(arguments, monkeypatch, capsys):
    monkeypatch.setattr(Attempts, "next_pause", lambda *_: pytest.fail("they look again"))
    assert call(umbrella.command, "scaler", [*arguments, "tcp://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("scaler: nothing listens at tcp://127.0.0.1:1")


def test_the_umbrella_alone_shows_what_there_is(capsys):
    assert call(umbrella.command, "scaler", []) == 2
    assert "cluster" in capsys.readouterr().err


def test_classes_refuse_what_command_lines_refuse():
    with pytest.raises(OptionError, match="workers must be at least 1, not 0"):
        AgentConfig(ADDRESS, workers=0)
    with pytest.raises(ValueError, match="event_loop must be one of auto, builtin, uvloop, not 'twisted'"):
        SchedulerConfig(ADDRESS, event_loop="twisted")
    with pytest.raises(OptionError, match="workers must be of type int, not True"):
        AgentConfig(ADDRESS, workers=True)
    with pytest.raises(OptionError, match="client_timeout must be at least"):
        SchedulerConfig(ADDRESS, client_timeout=float("nan"))
    with pytest.raises(OptionError, match=r"agent_timeout must be at least twice heartbeat_interval \(6\), not 10"):
        SchedulerConfig(ADDRESS, heartbeat_interval=6.0, client_timeout=20.0)


def test_numbers_are_said_as_people_read_them(complaint):
    for option, value, words in (
        ("--memory-limit", "1", "memory_limit must be at least 16 MiB, not 1 byte"),
        ("--max-message-bytes", str(2**64), "max_message_bytes must be at most 4,294,967,295 bytes, not 16 EiB"),
        ("--walltime", "1e300", "walltime must be at most 1,000,000,000, not 1e+300"),
        ("--workers", str(2**64), "workers must be at most 100,000, not 18,446,744,073,709,551,616"),
    ):
        assert words in complaint(cluster.command, "scaler_cluster", option, value, ADDRESS)


@pytest.mark.parametrize(
    "text", ["2GB", "512MiB", "512 mib", "1.5g", "100 Mi", "4e9", "1e5 kB", "30000000", "33000000b", "0.1TB", "1ti"]
)
def test_a_size_is_what_dask_reads_of_it(text, tmp_path, parse):
    file = tmp_path / "said.toml"
    file.write_text(f"[cluster]\nmemory_limit = {text!r}\n")
    wanted = parse_bytes(text)
    assert AgentConfig(ADDRESS, memory_limit=text).memory_limit == wanted
    assert parse(AgentConfig, "cluster", "--memory-limit", text, ADDRESS).memory_limit == wanted
    assert parse(AgentConfig, "cluster", "--config", str(file), ADDRESS).memory_limit == wanted


def test_times_have_units_and_sizes_of_a_file_may_be_written_as_others_write_large_numbers(tmp_path, parse):
    file = tmp_path / "some.toml"
    file.write_text('[cluster]\nmemory_limit = 4e9\ndeath_timeout = "5 min"\nheartbeat_interval = 2\n')
    config = parse(AgentConfig, "cluster", "--config", str(file), "--drain-grace", "250ms", ADDRESS)
    assert (config.memory_limit, config.death_timeout) == (4_000_000_000, 300)
    assert (config.heartbeat_interval, config.drain_grace) == (2, 0.25)
    assert isinstance(config.memory_limit, int)
    assert ProvisionConfig(ADDRESS, "local", idle_time="1h", walltime="2 days").walltime == 172_800


@pytest.mark.parametrize(
    "value", ["2GX", "GB", "lots", "auto", "", "2,5GB", "1e400", "inf", "0.5", "0.0001kB", 0.5, "2G B"]
)
def test_what_is_no_size_is_refused_with_what_is_one(value, complaint):
    """A fraction of a byte would be 0, which is no limit at all."""
    with pytest.raises(OptionError, match="worker_memory_limit must be a number of bytes, like 2GB or 512MiB, not "):
        AgentConfig(ADDRESS, worker_memory_limit=value)
    if isinstance(value, str):
        said = complaint(cluster.command, "scaler_cluster", "--memory-limit", value, ADDRESS)
        assert f"memory_limit must be a number of bytes, like 2GB or 512MiB, not {value!r}" in said


@pytest.mark.parametrize("value", ["5 parsecs", "1:00:00", "min", "soon", "nan"])
def test_what_is_no_time_is_refused_with_what_is_one(value, complaint):
    said = complaint(cluster.command, "scaler_cluster", "--walltime", value, ADDRESS)
    assert f"walltime must be a number of seconds, or a time like 30s or 5min, not {value!r}" in said


@pytest.mark.parametrize("config", [TopConfig, DashboardConfig, MetricsConfig, ProvisionConfig])
def test_a_monitor_looks_at_least_once_a_day(config):
    arguments = (ADDRESS, "local") if config is ProvisionConfig else (ADDRESS,)
    for seconds in (1e9, float("inf")):
        with pytest.raises(OptionError, match="interval must be at most 86400"):
            config(*arguments, interval=seconds)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"results": "r"}, "results is for durable jobs: give a journal, too"),
        ({"journal_quota": 5}, "journal_quota is for durable jobs"),
        ({"job_age": 1.0}, "job_age is for durable jobs"),
        ({"results": "r", "journal": "j", "results_quota": 5}, ""),
        ({"journal": "j", "results_quota": 5}, "results_quota is for results in files: give a directory for results"),
    ],
)
def test_what_is_for_durable_jobs_needs_where_they_are_kept(options, words):
    if not words:
        assert SchedulerConfig(ADDRESS, **options).results_quota == 5
        return
    with pytest.raises(OptionError, match=words):
        SchedulerConfig(ADDRESS, **options)


def test_a_prefix_is_a_path():
    assert DashboardConfig(ADDRESS, prefix="/user/j.doe@example.org/proxy%20a/").prefix
    for prefix in ("a b", "<c>", "https://head/scaler", "(a+)"):
        with pytest.raises(OptionError, match="prefix must be a path"):
            DashboardConfig(ADDRESS, prefix=prefix)


def test_an_option_error_travels():
    error = pickle.loads(pickle.dumps(OptionError("workers", "must be at least 1, not 0")))
    assert (error.option, str(error)) == ("workers", "workers must be at least 1, not 0")


def test_workers_are_one_for_each_core_unless_said():
    assert AgentConfig(ADDRESS).worker_count == granted_cores() >= 1
    assert AgentConfig(ADDRESS, workers=3).worker_count == 3


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        AgentConfig(ADDRESS).workers = 3


def test_log_lines_look_as_scripts_expect(tmp_path):
    log = tmp_path / "log"
    subprocess.run(
        [sys.executable, "-c", f"from scaler.cli.logs import set_up; set_up('INFO', {str(log)!r})"],
        check=True,
        timeout=30,
    )
    (line,) = log.read_text().splitlines()
    stamp, _, text = line.partition(": ")
    assert text == f"logging to ({str(log)!r},)"
    assert stamp.startswith("[INFO]2")
    assert stamp[-5] in "+-"


def test_a_log_that_cannot_be_written_is_said():
    with pytest.raises(errors.ScalerError, match="cannot write the log to /no/such/log"):
        logs.set_up("INFO", "/no/such/log")


def test_a_log_that_cannot_be_written_any_more_is_told_in_one_line():
    program = """
import logging
from scaler.cli.logs import set_up
set_up("INFO", "/dev/full")
for number in range(9):
    logging.info("a line of a task: %d", number)
logging.error("why it ends")
logging.info("%d", "a defect")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    said, why, rest = ended.stderr.split("\n", 2)
    assert said == "the log can't be written: No space left on device; lines are missing until it can"
    assert why.endswith(": why it ends"), "what is no error is left out"
    assert rest.startswith("--- Logging error ---"), "of a line that can't be made"
    assert "a line of a task" not in rest


def test_importing_the_package_loads_nothing_else():
    code = "import sys; before = set(sys.modules); import scaler; print(*set(sys.modules) - before)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30).stdout
    loaded = {name.partition(".")[0] for name in out.split() if name != "scaler"}
    assert not loaded - set(sys.stdlib_module_names)


def test_what_goes_wrong_while_a_name_is_imported_is_told(tmp_path, monkeypatch):
    (tmp_path / "home_of_client.py").write_text("import socket; socket.AF_UNHEARD_OF")  # as with a user's socket.py
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(scaler._HOMES, "Client", "home_of_client")
    monkeypatch.delitem(vars(scaler), "Client", raising=False)
    with pytest.raises(ImportError, match="Client can't be imported: module 'socket' has no attribute 'AF_UNHEARD_OF'"):
        from scaler import Client  # noqa: F401


def test_the_package_exports_every_public_exception():
    public = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert public <= set(scaler.__all__)
    assert scaler.TaskError is errors.TaskError


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Clinet'"):
        _ = scaler.Clinet


def test_a_configuration_travels_as_plain_values():
    config = AgentConfig(ADDRESS, workers=3, capabilities=("gpu", "big"))
    values = json.loads(json.dumps(plain_values(config)))
    assert values["capabilities"] == ["gpu", "big"]
    assert from_plain_values(AgentConfig, values) == config
    with pytest.raises(OptionError, match="workers must be at least 1"):
        from_plain_values(AgentConfig, {**values, "workers": 0})


def test_a_local_cluster_has_the_defaults_of_the_programs():
    parameters = inspect.signature(SchedulerClusterCombo).parameters
    defaults = {
        setting.name: setting.default for config in (AgentConfig, SchedulerConfig) for setting in settings(config)
    }
    own = {"address": None, "n_workers": None, "log_level": "WARNING", "warm_modules": None, "dashboard": False}
    for name, parameter in parameters.items():
        assert parameter.default == own.get(name, defaults.get(name)), name
