"""Numbers that options take can be carried to where they are used; whatever else is said is refused in a line."""

import math
import time

import pytest
import zmq

from scaler.agent.limits import live_limit
from scaler.agent.state.memory import AgentLimits
from scaler.config import (
    LONGEST,
    MOST_HOSTS,
    AgentConfig,
    DashboardConfig,
    MetricsConfig,
    OptionError,
    ProvisionConfig,
    SchedulerConfig,
    SymphonyConfig,
    TopConfig,
    settings,
)
from scaler.protocol import codes
from scaler.protocol.codec import decode, encode
from scaler.protocol.messages import Command, Heartbeat, Hello, Watch, Welcome
from scaler.provisioning import batch, kubernetes, slurm, ssh_options
from scaler.provisioning.registry import take
from scaler.transport import Address
from scaler.transport.zeromq_sockets import make_socket

ADDRESS = "tcp://127.0.0.1:2345"
#: a class, what has to be given, and what else some options need
CONFIGS = {
    SchedulerConfig: ((ADDRESS,), {"journal": "j", "results": "r"}),
    AgentConfig: ((ADDRESS,), {}),
    SymphonyConfig: ((ADDRESS, "service"), {}),
    TopConfig: ((ADDRESS,), {}),
    DashboardConfig: ((ADDRESS,), {}),
    MetricsConfig: ((ADDRESS,), {}),
    ProvisionConfig: ((ADDRESS, "local"), {"minimum": 0}),
}
STRANGE = [2**64, 1e300, math.inf, -math.inf, math.nan, -1, 0, 2**63 - 1, 2**32, 10**400]
NUMBERS = [(config, setting) for config in CONFIGS for setting in settings(config) if setting.kind in (int, float)]


def carries(message):
    assert decode(encode(message, 1, 0)).message == message


def hello(**said):
    return Hello("agent", "host", 1, 1, "3.11", "", "", 1, **said)


def seconds(value):
    """A time-out in a message, a walltime in it, a moment that is waited for."""
    carries(Welcome(1, 1, False, 0, 1, True, float(value), float(value), 1))
    carries(hello(walltime=round(1000 * value)))
    time.gmtime(time.time() + value)
    assert time.monotonic() + value < math.inf


def look(value):
    carries(Watch(max(1, round(1000 * value))))
    seconds(value)


def message_bytes(value):
    carries(Welcome(1, 1, False, 0, 1, True, 1.0, 1.0, value))
    assert value < 1 << 32, "sizes in columns"
    context = zmq.Context()
    try:
        made = make_socket(context, zmq.DEALER, Address.parse(ADDRESS), value)
        made.close()
    finally:
        context.term()


def memory(value):
    limits = AgentLimits(value, value)
    assert limits.objects_hard < 1 << 63
    assert live_limit(limits, 1) < 1 << 63
    carries(Heartbeat(0.0, 1, memory=value, stored=value))


def workers(value):
    message = hello(workers=value)
    message.validate()
    carries(message)


def hosts(value):
    carries(Command(1, "fleet", provider="local", desired=value, pending=value, running=value, draining=value))


def port(value):
    assert 0 <= value < 1 << 16


def count(value):
    assert 0 <= value < 1 << 32


#: by name, what shows that a value can be used
USES = {
    **dict.fromkeys(("heartbeat_interval", "interval", "list_interval"), look),
    **dict.fromkeys(("memory_limit", "worker_memory_limit", "journal_quota", "results_quota"), memory),
    **dict.fromkeys(("workers", "worker_threads", "base_concurrency"), workers),
    **dict.fromkeys(("minimum", "maximum", "max_pending"), hosts),
    **dict.fromkeys(("port", "store_port", "standalone_store_port"), port),
    **dict.fromkeys(("retries_on_loss", "max_tasks_per_worker"), count),
    "max_message_bytes": message_bytes,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "setting"), NUMBERS, ids=[f"{config.__name__}.{setting.name}" for config, setting in NUMBERS]
)
def test_a_number_is_refused_in_a_line_or_can_be_used(config, setting):
    option = setting.option
    assert option.minimum is not None
    assert option.maximum is not None
    given, more = CONFIGS[config]
    for value in [*STRANGE, option.minimum, option.maximum]:
        # what other checks compare it with is as large, or as small, as may be
        others = {"maximum": MOST_HOSTS} if setting.name == "minimum" else {}
        if config is SchedulerConfig and setting.name == "heartbeat_interval":
            others = {"client_timeout": LONGEST, "agent_timeout": LONGEST}
        if setting.name in ("client_timeout", "agent_timeout"):
            others = {"heartbeat_interval": 0.01}
        is_taken = option.minimum <= value <= option.maximum and (setting.kind is float or type(value) is int)
        said = {**more, **others, setting.name: value}
        if is_taken:
            USES.get(setting.name, seconds)(getattr(config(*given, **said), setting.name))
        else:
            with pytest.raises(OptionError, match=rf"\A{setting.name} .*\Z"):
                config(*given, **said)


NUMBERS_OF_PROVIDERS = [
    (provider, name)
    for provider in (batch, kubernetes, slurm, ssh_options)
    for name, (kind, *_) in provider.OPTIONS.items()
    if kind in (int, float)
]


@pytest.mark.parametrize(
    ("provider", "name"), NUMBERS_OF_PROVIDERS, ids=[f"{made.__name__}.{name}" for made, name in NUMBERS_OF_PROVIDERS]
)
def test_a_number_for_a_provider_is_refused_in_a_line_or_can_be_used(provider, name):
    kind, default, minimum, maximum = provider.OPTIONS[name]
    for value in [*STRANGE, default, minimum, maximum]:
        if minimum <= value <= maximum and (kind is float or type(value) is int):
            assert take({name: value}, provider.OPTIONS, "any")[name] == value
            assert (value + 60) * 1000 < 1 << 31, "the milliseconds of a poll"
        else:
            with pytest.raises(OptionError, match=rf"\A{name} .*\Z"):
                take({name: value}, provider.OPTIONS, "any")


def test_limits_that_the_protocol_has_too_are_the_same():
    from scaler import config

    assert config.MOST_WORKERS == codes.MAX_WORKERS
    assert config.MAX_JOB == codes.MAX_JOB
    assert config.MOST_CAPABILITIES == codes.MOST_CAPABILITIES
    assert config.LONGEST == codes.MOST_SECONDS
