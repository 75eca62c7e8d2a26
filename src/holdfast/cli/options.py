"""The command-line options that `holdfast acp` shares with the commands that open a session."""

import click

trust_option = click.option(
    "--trust",
    metavar="LEVEL",
    help="How much to trust the session: direct or sandboxed. The workspace and the host can only lower it.",
)
workspace_option = click.option(
    "--workspace",
    default="",
    metavar="NAME",
    help="The name of a workspace. Default: the one that contains the session's folder.",
)
