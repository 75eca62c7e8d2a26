"""The options with which browsers are started."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Early = Literal["nothing", "sandbox", "browser"]
"""See `LaunchOptions.early`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Where the browser is, and what it may reach."""

    program: str = ""
    """The path of the browser; empty to search for it."""
    is_sandboxed: bool = False
    """Whether the session is sandboxed: then the browser reaches only `hosts`, and Holdfast's sandbox confines it."""
    hosts: tuple[str, ...] = ()
    """For a sandboxed session: the hosts that the browser may reach."""
    private_hosts: tuple[str, ...] = ()
    """For a sandboxed session: those of `hosts` that the browser may also reach at private addresses."""
    denied_ports: tuple[int, ...] = ()
    """Ports of this machine that no page may reach, besides those that Holdfast's processes with this `data_dir` listen on."""
    data_dir: Path | None = None
    early: Early = "nothing"
    """What the server starts before the first call of `open`: nothing; the sandbox, with a shell that becomes the browser later; or the
    browser itself, if a tool call has started the server."""
    folder_base: Path | None = None
    """Where the folders of browsers are created; None for the default."""
