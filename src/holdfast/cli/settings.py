"""`holdfast settings`: what is in force, and why."""

import json

import click

from holdfast import settings as current
from holdfast.cli import table
from holdfast.cli.group import Group


@click.group(cls=Group)
def settings() -> None:
    """Show the settings and where each comes from.

    A setting comes from the environment, else from the settings file, else it has its default.
    """


@settings.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def show(*, as_json: bool) -> None:
    """Print every setting, its value and where the value comes from."""
    loaded = current.load()
    entries = current.entries(loaded)
    if as_json:
        values = {
            entry.setting.key: {
                "value": entry.value,
                "origin": entry.origin.kind,
                "where": entry.origin.where,
            }
            for entry in entries
        }
        click.echo(json.dumps({"file": str(loaded.file), "settings": values}, indent=2))
    else:
        table.show(
            ("setting", "value", "from"),
            [
                (entry.setting.key, str(entry.value), entry.origin.where or entry.origin.kind)
                for entry in entries
            ],
        )


@settings.command()
def path() -> None:
    """Print the settings file that is read, whether it exists or not."""
    click.echo(str(current.default_file()))
