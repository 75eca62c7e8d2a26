"""`holdfast keys`: the keys that vouch for a session's context on its way to remote servers."""

import json

import click

from holdfast import settings
from holdfast.cli.group import Group
from holdfast.token import Signer

FOLDER = "keys"


@click.group(cls=Group)
def keys() -> None:
    """Show and change the keys that sign a session's context.

    A remote server that is built on the toolkit believes a context only when one of these keys has signed it.
    """


@keys.command()
def show() -> None:
    """Print the public keys as a JWKS, for the verifiers of remote servers."""
    click.echo(json.dumps(_signer().jwks(), indent=2))


@keys.command()
@click.option("--revoke", is_flag=True, help="Drop the old keys at once, for one that leaked.")
def rotate(*, revoke: bool) -> None:
    """Sign with a new key from now on.

    The old keys verify until the last token they signed has expired, in about a minute; then give verifiers
    elsewhere the new set.
    """
    signer = _signer()
    signer.rotate(revoke=revoke)
    click.echo(f"Signing with a new key. The public set is in {signer.public_file}.")


def _signer() -> Signer:
    return Signer(settings.load().data_dir / FOLDER)
