"""What hosts are asked for with: the agent's command line and its environment, from the configuration."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

from scaler.common import start_environment
from scaler.config import ProvisionConfig
from scaler.provisioning.core.limits import Limits
from scaler.provisioning.provider import HostTemplate
from scaler.transport import Security
from scaler.transport.security import KEY_FILE_VARIABLE

#: seconds by which an agent's walltime is shorter than its job's: it begins later than that
START = 3.0


def limits_of(config: ProvisionConfig) -> Limits:
    """What the core decides by."""
    return Limits(
        config.minimum, config.maximum, config.workers, frozenset(config.capabilities), config.exclusive,
        config.drain_time, config.guess, config.idle_time, config.max_pending, config.pending_timeout,
        config.start_timeout, config.lead, config.settle_time,
    )  # fmt: skip


def template_of(config: ProvisionConfig, request: int, security: Security) -> HostTemplate:
    """A request with this number."""
    command = [
        config.command or agent_program(), config.address, "--workers", str(config.workers),
        "--death-timeout", f"{config.orphan_timeout:g}",
    ]  # fmt: skip
    if config.walltime is not None:
        command += ["--walltime", f"{max(config.walltime / 2, config.walltime - START):g}"]
    if config.capabilities:
        command += ["--capabilities", ",".join(config.capabilities)]
    if config.insecure:
        command += ["--insecure"]
    command += config.agent_options
    return HostTemplate(
        config.tag, request, tuple(command), config.walltime, config.capabilities, _keys(config, security),
        config.workers,
    )  # fmt: skip


def _keys(config: ProvisionConfig, security: Security) -> Mapping[str, str]:
    """A file that has a name is found by it on hosts that share it; a pair that has no file goes along itself."""
    if config.insecure:
        return {}
    if os.path.isfile(security.origin):
        return {KEY_FILE_VARIABLE: os.path.abspath(security.origin)}
    return security.to_env()


def agent_program() -> str:
    """Where `scaler_cluster` is: beside the interpreter, or on the path."""
    beside = os.path.join(os.path.dirname(sys.executable), "scaler_cluster")
    return beside if os.access(beside, os.X_OK) else shutil.which("scaler_cluster") or "scaler_cluster"


def job_environment(template: HostTemplate) -> dict[str, str]:
    """What jobs are asked for with: the caller's variables, and those without which an agent begins a second time."""
    return {**os.environ, **start_environment.environment(), **template.environment}
