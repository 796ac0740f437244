"""`scaler kubernetes-manifests`: a whole cluster as JSON for `kubectl apply -f -`."""

from __future__ import annotations

import json

import click

from scaler.cli.asking import SETTINGS, quietly
from scaler.config import MOST_HOSTS, MOST_WORKERS, OptionError, check_tag


@click.command("kubernetes-manifests", short_help="Print a whole cluster for kubectl.", context_settings=SETTINGS)
@click.option("--image", required=True, help="a container image that has this package, and what tasks import")
@click.option("--tag", default="scaler", show_default=True, help="what all names begin with")
@click.option("--namespace", default="default", show_default=True, help="where all of it is to be")
@click.option("--agents", type=click.IntRange(0, MOST_HOSTS), default=2, show_default=True, help="pods with workers")
@click.option("--workers", type=click.IntRange(1, MOST_WORKERS), default=1, show_default=True, help="workers of each")
@click.option("--cpu", default="", help="processors of each agent, like 2 or 500m; by default as many as workers")
@click.option("--memory", default="", help="memory of each agent, like 4Gi")
@click.option("--key-file", default=None, help="file with the key pair; the user's own by default")
def command(
    image: str, tag: str, namespace: str, agents: int, workers: int, cpu: str, memory: str, key_file: str | None
) -> int:
    """Print scheduler, dashboard, agents and their secret; what is printed holds the cluster's key."""
    from scaler.errors import KeyFileError
    from scaler.provisioning.manifests import KEY_VARIABLE, PodOptions, cluster
    from scaler.transport import security_of

    try:
        _check_tag(tag)
        options = PodOptions(image, namespace, cpu or str(workers), memory, key_secret=f"{tag}-key")
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    security = security_of(key_file, False)
    if security.is_ephemeral:
        raise KeyFileError("there is no key file and none could be written: name one with --key-file, for your clients")
    key = security.to_env()[KEY_VARIABLE]
    text = json.dumps(cluster(options, tag, key, agents, workers), indent=2)
    return quietly(lambda: print(text))


def _check_tag(tag: str) -> None:
    """Raises `OptionError`, also for what services can't be called in Kubernetes."""
    check_tag(tag)
    if not tag[0].isalpha():
        raise OptionError("tag", f"must begin with a letter in Kubernetes, not {tag!r}")
