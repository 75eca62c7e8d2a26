"""`holdfast acp`: the agent command for an editor."""

from pathlib import Path

import click


@click.command()
@click.option("--trust", help="direct or sandboxed; never more than the workspace and the host allow.")
@click.option(
    "--workspace", default="", help="A workspace's name; otherwise the one a session's folder is in."
)
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="Another settings file.")
def acp(trust: str | None, workspace: str, config: Path | None) -> None:
    """Serve an editor that speaks ACP, on standard input and output.

    Name this command as the agent in Zed, JetBrains or Neovim. Logs go to standard error.
    """
    import asyncio

    from holdfast import settings, telemetry
    from holdfast.acp.serve import serve
    from holdfast.acp.terms import Terms
    from holdfast.model.trust import parse_trust

    loaded = settings.load(config)
    telemetry.configure(loaded.log.level, loaded.log.format)
    terms = Terms(trust=parse_trust(trust) if trust is not None else None, workspace=workspace)
    asyncio.run(serve(loaded, terms))
