"""Which addresses a tab may show."""

import re
from urllib.parse import urlsplit

from holdfast.builtin.stage.codes import URL_DENIED
from holdfast.model.blocked_addresses import is_loopback_host
from holdfast.toolkit import ToolError

DENIED_PATTERNS = (
    "file:*",
    "data:*",
    "view-source:*",
    "chrome:*",
    "chrome-untrusted:*",
    "devtools:*",
    "filesystem:*",
    "ftp:*",
)
"""Patterns of requests that are stopped before anything is loaded."""
UNSAFE_REDIRECT = "net::ERR_UNSAFE_REDIRECT"
"""The browser's error for a server's redirect to an address such as `file:` or `data:`."""
_BROWSER_SCHEMES = frozenset(
    (
        *("", "http", "https", "about", "blob", "data", "file", "filesystem", "javascript"),
        *("chrome", "chrome-error", "chrome-extension", "chrome-untrusted", "devtools", "view-source"),
    )
)
_BLANK = ("", "about:blank", "about:srcdoc")
_CREDENTIALS = re.compile(r"^([a-z]+://)[^/?#\\]*@", re.IGNORECASE)


def without_credentials(url: str) -> str:
    """Return the address without a user name and a password, as answers show it."""
    return _CREDENTIALS.sub(r"\1", url)


def is_for_program(url: str) -> bool:
    """Return whether the browser would open another program for this address, such as a mail program."""
    return urlsplit(url).scheme not in _BROWSER_SCHEMES


def asks_first(url: str) -> bool:
    """Return whether the browser asks its user before it opens another program for this address. For `mailto:` it does not."""
    return urlsplit(url).scheme != "mailto"


def check_url(url: str) -> str:
    """Return the address to load. Raises URL_DENIED unless it is http, https or about:blank.

    If it has no scheme, `http:` is added for this machine, and `https:` for others.
    """
    text = url.strip()
    if text == "about:blank":
        return text
    if "://" not in text and not text.lower().startswith(
        ("javascript:", "data:", "blob:", "file:", "about:", "chrome:", "view-source:")
    ):
        text = f"https://{text}"
        if is_loopback_host(_host(text)):
            text = f"http{text.removeprefix('https')}"
    if not text.lower().startswith(("http://", "https://")) or not _host(text):
        raise ToolError(URL_DENIED, "Only http and https addresses and about:blank can be opened.")
    if any(character < " " for character in text):
        raise ToolError(URL_DENIED, "The address contains control characters.")
    return text


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def may_show(url: str, parent_url: str | None) -> bool:
    """Return whether a frame may show this address. `parent_url` is the address of its parent frame; None for a tab's main frame."""
    if url in _BLANK or url.startswith(("http://", "https://", "about:blank#", "about:blank?")):
        return True
    if url.startswith("chrome-error:"):  # the browser's own page about a load that failed
        return True
    if parent_url is not None and url.startswith("blob:"):
        return _origin(url[len("blob:") :]) == _origin(parent_url) != ""
    return False


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else ""
