"""`holdfast settings`: show the settings, and the path of their file."""

import click

from holdfast import settings as settings_module
from holdfast.cli.click_groups import FullHelpGroup
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_output, print_table


@click.group(cls=FullHelpGroup)
def settings() -> None:
    """Show the settings and where each comes from.

    A value comes from an environment variable, or else from the settings file, or else it is the default.

    \b
    Examples:
      holdfast settings show
      holdfast settings path
    """


@settings.command()
@json_option
def show(*, as_json: bool) -> None:
    """Print every setting, its value and where the value comes from.

    \b
    Example:
      holdfast settings show --json
    """
    loaded = settings_module.load()
    entries = settings_module.setting_values(loaded)
    if as_json:
        values = {
            entry.setting.key: {
                "value": entry.value,
                "origin": entry.origin.kind,
                "where": entry.origin.where,
            }
            for entry in entries
        }
        print_json({"file": str(loaded.file), "settings": values})
    else:
        print_table(
            ("setting", "value", "from"),
            [
                (entry.setting.key, str(entry.value), entry.origin.where or entry.origin.kind)
                for entry in entries
            ],
        )


@settings.command()
def path() -> None:
    """Print the path of the settings file, whether it exists or not.

    \b
    Example:
      $EDITOR "$(holdfast settings path)"
    """
    print_output(str(settings_module.settings_file()))
