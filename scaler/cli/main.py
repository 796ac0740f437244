"""`scaler SUBCOMMAND`: every program under one name."""

from __future__ import annotations

import sys

import click

from scaler.cli import (
    cluster,
    commands,
    jobs,
    journal,
    kubernetes,
    lists,
    metrics,
    provision,
    questions,
    scheduler,
    symphony,
    top,
    ui,
)
from scaler.cli.asking import SETTINGS
from scaler.cli.command import call, with_version

command = click.Group(
    "scaler",
    commands={
        "scheduler": scheduler.command,
        "cluster": cluster.command,
        "worker": cluster.command,
        "symphony": symphony.command,
        "kubernetes-manifests": kubernetes.command,
        "provision": provision.command,
        "status": lists.status,
        "agents": lists.agents,
        "workers": lists.workers,
        "clients": lists.clients,
        "functions": lists.functions,
        "objects": lists.objects,
        "tasks": questions.tasks,
        "explain": questions.explain,
        "story": questions.story,
        "cancel": commands.cancel,
        "drain": commands.drain,
        "promote": commands.promote,
        "hand-over": commands.hand_over,
        "jobs": jobs.jobs,
        "attach": jobs.attach,
        "results": jobs.results,
        "delete": jobs.delete,
        "journal": journal.journal,
        "top": top.command,
        "ui": ui.command,
        "metrics": metrics.command,
    },
    help="Scaler, a distributed task engine.",
    context_settings=SETTINGS,
)
with_version(command)


def main() -> None:
    """The program `scaler`."""
    sys.exit(call(command, "scaler"))
