"""The options of opening a session."""

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.json import Json
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from holdfast.resolve.select import Restriction


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """The options of opening a session. `cwd` must be the absolute path of an existing folder."""

    cwd: str | Path = ""
    roots: tuple[str, ...] = ()
    workspace: str = ""
    trust: Trust | None = None
    """The highest trust the session may have. The settings, the workspace or the parent may lower it."""
    servers: tuple[Json, ...] = ()
    user_id: str | None = None
    parent: SessionContext | None = None
    """The session whose agent starts this one; its user and its workspace are used."""
    title: str = ""
    opened_by: str = "python"
    """`acp`, `chat`, `cli` or `python`; `holdfast sessions` shows it as the source."""
    mode: Mode | None = Mode.AUTO
    """What the session does with calls that may change something. The settings and the workspace may lower it.

    None: the mode that the stored session had; `ask` for a new one.
    """
    restriction: Restriction | None = None
    """Set by a caller that runs a defined agent: the servers and tools that the definition allows. It only narrows."""
    only_server: str | None = None
    """The only server to use; the others are ignored."""
    door: Door | None = field(default=None, compare=False)
    """A door that is attached before the servers start, so that they learn what it supports."""
