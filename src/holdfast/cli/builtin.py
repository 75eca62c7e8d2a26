"""`holdfast builtin`: run one of the built-in MCP servers."""

import click

HELP = """Run a built-in MCP server, on standard input and output.

\b
Examples:
  holdfast builtin tasks                          serve a task list for each workspace
  holdfast builtin tasks --http 127.0.0.1:8080    serve it over HTTP
  holdfast builtin tasks manifest                 print its tools as JSON, without serving them
  holdfast builtin stage                          serve a browser
"""


@click.group(help=HELP)
def builtin() -> None:
    """Run one server."""


@builtin.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tasks(arguments: tuple[str, ...]) -> None:
    """Serve a task list for each workspace.

    \b
    Example:
      holdfast builtin tasks --http 127.0.0.1:8080
    """
    from holdfast.builtin.tasks.server import main

    main(list(arguments))


@builtin.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def stage(arguments: tuple[str, ...]) -> None:
    """Serve a browser: tools that open pages, read them and act on them.

    \b
    Example:
      holdfast builtin stage --allow-eval
    """
    from holdfast.builtin.stage.main import main

    main(list(arguments))
