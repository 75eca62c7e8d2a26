"""Cleans text from a server, which may contain secrets, before a message quotes it."""

from holdfast.masking.configured_secrets import secrets_in_spec
from holdfast.masking.mask import Mask
from holdfast.masking.obtained_secrets import ANY_SESSION
from holdfast.model.context import current_context
from holdfast.model.server import ServerSpec
from holdfast.model.visible_text import to_line

# In characters. More text is masked than is quoted, because a secret must be complete to be recognised.
MAX_LENGTH, _MAX_MASKED = 2000, 8000
_MAX_START, _MAX_START_MASKED = 200, 16 * 1024


def clean_server_text(spec: ServerSpec, text: str) -> str:
    """The text on one line, shortened, without control and invisible characters, and with secrets masked."""
    line = _for_current_session(Mask.of(secrets_in_spec(spec))).mask_all(to_line(text[:_MAX_MASKED]))
    return line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH - 1]}…"


def start_of_server_text(text: str) -> str:
    """The first characters of a server's text, with obtained and likely secrets masked."""
    return _for_current_session(Mask()).mask_all(text[:_MAX_START_MASKED])[:_MAX_START]


def _for_current_session(mask: Mask) -> Mask:
    context = current_context()
    return mask.for_session(ANY_SESSION if context is None else context.session_id)
