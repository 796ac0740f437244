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

#: the commands in the order in which somebody comes to need them, by what they are for
SECTIONS: dict[str, dict[str, click.Command]] = {
    "A cluster": {
        "scheduler": scheduler.command,
        "cluster": cluster.command,
        "worker": cluster.command,
        "provision": provision.command,
        "kubernetes-manifests": kubernetes.command,
        "symphony": symphony.command,
    },
    "What it does": {
        "status": lists.status,
        "top": top.command,
        "ui": ui.command,
        "metrics": metrics.command,
        "agents": lists.agents,
        "workers": lists.workers,
        "clients": lists.clients,
        "functions": lists.functions,
        "objects": lists.objects,
        "tasks": questions.tasks,
        "explain": questions.explain,
        "story": questions.story,
    },
    "What it is told": {
        "cancel": commands.cancel,
        "drain": commands.drain,
        "hand-over": commands.hand_over,
        "promote": commands.promote,
    },
    "Durable jobs": {
        "jobs": jobs.jobs,
        "attach": jobs.attach,
        "results": jobs.results,
        "delete": jobs.delete,
        "journal": journal.journal,
    },
}


class Programs(click.Group):
    """A group whose help has the commands in sections."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        names = [len(name) for section in SECTIONS.values() for name in section]
        limit = formatter.width - 6 - max(names)
        for title, section in SECTIONS.items():
            with formatter.section(title):
                rows = [(name, each.get_short_help_str(limit)) for name, each in section.items()]
                formatter.write_dl([(name.ljust(max(names)), text) for name, text in rows])


command = Programs(
    "scaler",
    commands={name: each for section in SECTIONS.values() for name, each in section.items()},
    help="Scaler, a distributed task engine.",
    context_settings=SETTINGS,
)
with_version(command)


def main() -> None:
    """The program `scaler`."""
    sys.exit(call(command, "scaler"))
