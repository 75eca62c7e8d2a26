"""Find the definitions of agents: in the user's own folder, and in a session's folder after approval."""

import hashlib
import json
import os
import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from holdfast.audit.approvals import REVOKED, approval_record
from holdfast.audit.audit import Audit
from holdfast.model import codes
from holdfast.model.agent_definition import MAX_BYTES, NAME, AgentDefinition, parse_definition
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.untrusted_file import (
    SharedFileError,
    UnusableFileError,
    read_own_file,
    read_project_file,
)
from holdfast.model.visible_text import strip_invisible
from holdfast.session.project_instructions import FILE as INSTRUCTIONS_FILE
from holdfast.session.project_instructions import instructions_prefix
from holdfast.settings import Settings
from holdfast.store.store import Store, Tx
from holdfast.store.types import Approval

PROJECT_FOLDER = ".holdfast/agents"
_MAX_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """A file with the definition of an agent, and why it cannot be used, if it cannot."""

    name: str
    origin: str
    """The path of the file."""
    is_project: bool
    """Whether it is a project's file, not the user's own."""
    definition: AgentDefinition | None = None
    """None if the definition cannot be used."""
    text: str = ""
    problem: str = ""
    """Why the definition cannot be used; empty if it can."""
    is_approved: bool = True
    """Whether the user has approved it as it is now. Always true for the user's own file."""


class AgentDefinitions:
    """The definitions that the sessions of one host can use."""

    def __init__(self, settings: Settings, store: Store, audit: Audit) -> None:
        self._own_folder = settings.file.parent / "agents"
        models = settings.model
        self._models = frozenset(filter(None, (models.name, *models.also)))
        self._store = store
        self._audit = audit

    async def require(self, name: str, folder: str) -> AgentDefinition:
        """The definition with this name. Raise UNKNOWN_AGENT or NOT_APPROVED if it cannot be used."""
        agent_file = await self.find(name, folder)
        if agent_file is None:
            usable = [file.name for file in await self.list(folder) if file.definition is not None]
            known = f" The agents here are: {', '.join(usable)}." if usable else ""
            raise HoldfastError(
                codes.UNKNOWN_AGENT,
                f"There is no agent {name[:80]!r}: neither {self._own_folder}/{name[:80]}.md nor {PROJECT_FOLDER}/{name[:80]}.md exists.{known}",
            )
        if not agent_file.is_approved:
            raise HoldfastError(
                codes.NOT_APPROVED,
                f"The agent {name!r} is defined by the project ({agent_file.origin}), and you have not approved it as it is now. "
                f"Read and approve it with: {shlex.join(('holdfast', 'agents', 'approve', name))}",
                hint=f"To read it without approving it: {shlex.join(('holdfast', 'agents', 'show', name))}",
            )
        if agent_file.definition is None:
            raise HoldfastError(
                codes.UNKNOWN_AGENT,
                # Without a full stop: the problem may end with a command to copy.
                f"The agent {name!r} cannot be used: {agent_file.problem}",
            )
        return agent_file.definition

    async def find(self, name: str, folder: str) -> AgentFile | None:
        """The file of the agent with this name; None if there is none. The user's own file comes before the project's.

        A project's file that is not approved has no `definition`.
        """
        if not NAME.fullmatch(name):
            return None
        for start, inner in ((str(self._own_folder), ""), (folder, PROJECT_FOLDER)):
            agent_file = await run_with_file_timeout(partial(_read, name, start, inner), path=start)
            if agent_file is not None:
                return await self._check(agent_file)
        return None

    async def list(self, folder: str) -> list[AgentFile]:
        """The definitions for sessions in this folder, including those that cannot be used: `problem` says why."""
        project = Path(folder) / PROJECT_FOLDER
        own_names = await run_with_file_timeout(_names, self._own_folder, path=str(self._own_folder))
        project_names = await run_with_file_timeout(_names, project, path=str(project))
        files = [await self.find(name, folder) for name in sorted({*own_names, *project_names})]
        return [file for file in files if file is not None]

    async def approve(self, agent_file: AgentFile, *, by: str) -> None:
        """Approve a project's definition with exactly this content."""
        approval = Approval(
            key=_key(agent_file), content_hash=_digest(agent_file.text), by=by, at=self._store.now()
        )

        def write(tx: Tx) -> None:
            tx.remove_approvals(_key(agent_file))
            tx.approve(approval)
            self._audit.append(tx, approval_record(approval))

        await self._store.write(write)

    async def _check(self, agent_file: AgentFile) -> AgentFile:
        """The file; if its definition may not be used, without the definition and with a `problem`."""
        if agent_file.is_project and not agent_file.text and agent_file.problem:
            return agent_file  # there is nothing that could be approved
        if agent_file.is_project:
            approvals = await self._store.read(lambda tx: tx.approvals(_key(agent_file)))
            digest = _digest(agent_file.text)
            if not any(approval.content_hash == digest for approval in approvals):
                return replace(agent_file, definition=None, is_approved=False, problem="not approved")
        definition = agent_file.definition
        if definition is not None and definition.model and definition.model not in self._models:
            problem = (
                f"it asks for the model {definition.model[:80]!r}, which is not in the settings: "
                "add it to model.also, or remove `model` from the definition"
            )
            return replace(agent_file, definition=None, problem=problem)
        return agent_file


async def revoke(store: Store, audit: Audit, folder: str, name: str, *, by: str) -> bool:
    """Revoke the approvals of a project's agent, or of its AGENTS.md. Return whether there was one."""
    agent_file = AgentFile(name=name, origin=str(_project_path(folder, name)), is_project=True)
    prefix = instructions_prefix(folder) if name == INSTRUCTIONS_FILE else _key(agent_file)
    now = store.now()

    def remove(tx: Tx) -> bool:
        removed = tx.approvals(prefix)
        tx.remove_approvals(prefix)
        for approval in removed:
            audit.append(tx, msgspec.structs.replace(approval_record(approval, REVOKED, by=by), at=now))
        return bool(removed)

    return await store.write(remove)


def _project_path(folder: str, name: str) -> Path:
    return Path(folder) / PROJECT_FOLDER / f"{name}.md"


def _read(name: str, folder: str, inner: str) -> AgentFile | None:
    """Read and parse a file; None if there is none. Blocks. `inner` is the folder in the project; empty for the user's own file.

    Invisible characters are removed from a project's file, so that the user approves exactly the text that the model gets.
    """
    path, is_project = Path(folder, inner, f"{name}.md"), bool(inner)
    agent_file = AgentFile(name=name, origin=str(path), is_project=is_project)
    try:
        if is_project:
            raw = read_project_file(folder, f"{inner}/{name}.md", limit=MAX_BYTES)
        else:
            raw = read_own_file(path, limit=MAX_BYTES)
        text = strip_invisible(raw.decode()) if is_project else raw.decode()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except UnicodeDecodeError:
        return replace(agent_file, problem="it is not UTF-8 text")
    except SharedFileError as error:
        return replace(agent_file, problem=f"it is not read: {error.strerror}")
    except OSError as error:
        is_unusable = is_project and isinstance(error, UnusableFileError)
        why = (
            f"it is {error.strerror}, so it is not read"
            if is_unusable
            else f"it could not be read: {error.strerror}"
        )
        return replace(agent_file, problem=why)
    try:
        definition = parse_definition(name, text)
    except ValueError as error:
        return replace(agent_file, text=text, problem=str(error))
    definition = replace(definition, origin=str(path), digest=_digest(text), is_project=is_project)
    return replace(agent_file, text=text, definition=definition)


def _names(folder: Path) -> list[str]:
    """The names of the definitions in a folder. Blocks."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name, dot, suffix = entry.name.rpartition(".")
                if dot and suffix == "md" and NAME.fullmatch(name):
                    names.append(name)
                if len(names) >= _MAX_FILES:
                    break
    except OSError:
        pass
    return names


def _key(agent_file: AgentFile) -> str:
    return json.dumps(["agent", agent_file.origin, agent_file.name])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
