"""`scaler kubernetes-manifests`: a whole cluster as JSON for `kubectl apply -f -`."""

from __future__ import annotations

import json

import click

from scaler.cli.asking import quietly
from scaler.config import MOST_HOSTS, MOST_WORKERS


@click.command("kubernetes-manifests", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--image", required=True, help="a container image that has this package, and what tasks import")
@click.option("--tag", default="scaler", show_default=True, help="what all names begin with")
@click.option("--namespace", default="default", show_default=True)
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
    from scaler.transport import load_or_create, security_of

    security = security_of(key_file, False) if key_file else load_or_create()
    if security.is_ephemeral:
        raise KeyFileError("there is no key file and none could be written: name one with --key-file, for your clients")
    options = PodOptions(image, namespace, cpu or str(workers), memory, key_secret=f"{tag}-key")
    key = security.to_env()[KEY_VARIABLE]
    text = json.dumps(cluster(options, tag, key, agents, workers), indent=2)
    return quietly(lambda: print(text))
