"""`holdfast keys`: show and rotate the keys that sign the session context for remote servers."""

import click

from holdfast import settings
from holdfast.cli.click_groups import FullHelpGroup
from holdfast.cli.output import print_indented_json, print_line
from holdfast.host.data_folder import KEYS_FOLDER
from holdfast.token import Signer


@click.group(cls=FullHelpGroup)
def keys() -> None:
    """Show and rotate the keys that sign a session's context.

    A remote server built on the toolkit accepts a context only if one of these keys signed it.

    \b
    Examples:
      holdfast keys show > jwks.json
      holdfast keys rotate
    """


@keys.command()
def show() -> None:
    """Print the public keys as a JWKS, for remote servers.

    \b
    Example:
      holdfast keys show > jwks.json
    """
    print_indented_json(_signer().jwks())


@keys.command()
@click.option("--revoke", is_flag=True, help="Also remove the old keys, for example because one leaked.")
def rotate(*, revoke: bool) -> None:
    """Create a new key, and sign with the new key from now on.

    Give the new public keys to your remote servers. Without --revoke, tokens signed with the old keys stay valid until they
    expire, after about a minute.

    \b
    Example:
      holdfast keys rotate && holdfast keys show > jwks.json
    """
    signer = _signer()
    signer.rotate(revoke=revoke)
    print_line(f"Now signing with a new key. The public keys are in {signer.public_file}.")


def _signer() -> Signer:
    return Signer(settings.load().data_dir / KEYS_FOLDER)
