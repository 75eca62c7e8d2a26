"""How a failure is told: a sentence, and what to do about it."""

import click

from holdfast.cli.table import plain
from holdfast.model.errors import HoldfastError


def tell(error: HoldfastError) -> None:
    """Print the failure; what servers and files say in it is shown, and never steers the terminal."""
    told = "\n".join(map(plain, error.message.split("\n")))
    click.echo(f"Error: {told}", err=True)
    click.echo(f"Hint: {plain(str(error.details.get('hint', error.code.hint)))}", err=True)
