"""`holdfast acp`: serve an editor."""

from pathlib import Path

import click

from holdfast.cli.options import model_option, trust_option, user_option, workspace_option
from holdfast.cli.output import print_line


@click.command()
@trust_option
@workspace_option
@model_option
@user_option
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The settings file. Default: the one that `holdfast settings path` prints.",
)
def acp(trust: str | None, workspace: str, model: str, user_id: str, config: Path | None) -> None:
    """Serve an editor that speaks ACP, on standard input and output.

    Configure this command as the agent in Zed, JetBrains or Neovim. Logs go to standard error.

    \b
    Example:
      holdfast acp --trust sandboxed
    """
    import asyncio
    import sys

    from holdfast import log_output, settings
    from holdfast.acp.serve import SessionDefaults, serve
    from holdfast.cli.exit_deadline import ExitDeadline
    from holdfast.model.descriptor_limit import raise_descriptor_limit
    from holdfast.model.parse_text import parse_user_id
    from holdfast.model.trust import parse_trust
    from holdfast.store.suspension import suspend_between_transactions

    raise_descriptor_limit()
    suspend_between_transactions()
    loaded = settings.load(config)
    log_output.configure(loaded.log.level, loaded.log.format)
    if sys.stdin.isatty():
        print_line(
            "This command is for editors: it waits for their messages here. To chat: holdfast chat", err=True
        )
    defaults = SessionDefaults(
        trust=parse_trust(trust) if trust is not None else None,
        workspace=workspace,
        model=model,
        user_id=parse_user_id(user_id),
    )
    with ExitDeadline() as deadline:
        asyncio.run(serve(loaded, defaults, on_end=deadline.start))
