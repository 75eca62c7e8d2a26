"""`holdfast acp`: serve an editor."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--trust",
    metavar="LEVEL",
    help="How much to trust the session: direct or sandboxed. The workspace and the host can only lower it.",
)
@click.option(
    "--workspace",
    default="",
    metavar="NAME",
    help="The name of a workspace. Default: the one that contains the session's folder.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The settings file. Default: the one that `holdfast settings path` prints.",
)
def acp(trust: str | None, workspace: str, config: Path | None) -> None:
    """Serve an editor that speaks ACP, on standard input and output.

    Configure this command as the agent in Zed, JetBrains or Neovim. Logs go to standard error.

    \b
    Example:
      holdfast acp --trust sandboxed
    """
    import asyncio

    from holdfast import settings, telemetry
    from holdfast.acp.serve import SessionDefaults, serve
    from holdfast.model.trust import parse_trust

    loaded = settings.load(config)
    telemetry.configure(loaded.log.level, loaded.log.format)
    defaults = SessionDefaults(trust=parse_trust(trust) if trust is not None else None, workspace=workspace)
    asyncio.run(serve(loaded, defaults))
