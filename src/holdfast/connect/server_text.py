"""Clean text from a server before it is quoted in a message of Holdfast."""

from holdfast.masking.configured_secrets import secrets_in_spec
from holdfast.masking.mask import Mask
from holdfast.model.server import ServerSpec
from holdfast.model.visible_text import to_line

MAX_LENGTH = 2000
_MAX_READ = 4 * MAX_LENGTH  # more than is shown, so that a secret at the end is complete and can be masked


def clean_server_text(spec: ServerSpec, text: str) -> str:
    """The text on one line, shortened, without control and invisible characters, and with the spec's secrets masked."""
    line = Mask.of(secrets_in_spec(spec)).mask_all(to_line(text[:_MAX_READ]))
    return line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH - 1]}…"
