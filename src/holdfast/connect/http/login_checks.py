"""Checks where a login sends its secrets, so that one authorization server cannot get the codes of another."""

from mcp.shared.auth import AuthorizationCodeResult, OAuthMetadata
from yarl import URL

from holdfast.connect.http.url import display_url, parse_url
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_ADVICE = (
    "Nothing was sent to that address. Ask the operator of the server to correct this, or get a token in another way and put "
    "it into the Authorization header of the server's entry."
)


def check_code_origin(result: AuthorizationCodeResult, metadata: OAuthMetadata | None) -> None:
    """Raise unless it is certain that the authorization code comes from the authorization server that it will be sent to.

    The parameter `iss` says which server issued the code (RFC 9207; the SDK compares it). Without it, all addresses in the
    metadata must be on the issuer's origin.
    """
    if result.iss is not None or metadata is None:
        return
    issuer = parse_url(str(metadata.issuer))
    for endpoint in (
        metadata.authorization_endpoint,
        metadata.token_endpoint,
        metadata.registration_endpoint,
    ):
        if endpoint is not None and parse_url(str(endpoint)).origin() != issuer.origin():
            raise HoldfastError(
                codes.BAD_ANSWER,
                f"The login was refused: the authorization server {display_url(issuer)} uses the address "
                f"{display_url(parse_url(str(endpoint)))} of another server, and the answer from the login page does not "
                f"say which server issued it (iss). {_ADVICE}",
            )


def check_encrypted(url: URL, server: URL) -> None:
    """Raise if the login to an https server would be sent without encryption."""
    if server.scheme == "https" and url.scheme != "https":
        raise HoldfastError(
            codes.BAD_ANSWER,
            f"The login was refused: {display_url(server)} uses the address {display_url(url)}, which is not "
            f"encrypted (https). {_ADVICE}",
        )
