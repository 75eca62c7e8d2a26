"""The command-line options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on one line, for programs."
)
json_lines_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON lines, one object per line, for programs."
)
model_option = click.option(
    "--model",
    default="",
    metavar="NAME",
    help="The model that answers, such as anthropic:claude-sonnet-5. Default: that of the workspace or the settings.",
)
trust_option = click.option(
    "--trust",
    metavar="LEVEL",
    help="How much to trust the session: direct or sandboxed. Workspaces that overlap with its folders, and the setting trust_ceiling, can only lower it.",
)
user_option = click.option(
    "--user",
    "user_id",
    default="",
    metavar="ID",
    help="The id of the user that the session belongs to, if your program serves several users. Servers get the id."
    " Other users cannot open the session.",
)
workspace_option = click.option(
    "--workspace",
    default="",
    metavar="NAME",
    help="The name of a workspace. Default: the one that contains the session's folder.",
)


def path_option(command: F) -> F:
    """Add the option `--path`: the store's file. The default is the file in `data_dir`."""
    return click.option(
        "--path",
        type=click.Path(path_type=Path),
        help="The store's file. Default: holdfast.db in `data_dir`.",
    )(command)


def output_option(command: F) -> F:
    """Add the option `--output`: the file to write."""
    return click.option(
        "--output",
        type=click.Path(path_type=Path),
        help="The file to create. Default (or `-`): standard output.",
    )(command)
