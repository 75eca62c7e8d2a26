"""Opens a stored session for an editor: in this process, or through the process that has it open."""

import asyncio

from holdfast.acp.attached_session import AttachedSession
from holdfast.acp.door import EditorDoor
from holdfast.acp.editor_session import EditorSession
from holdfast.acp.own_session import OwnSession
from holdfast.host.host import Host
from holdfast.host.join import OtherOwner
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.lease import session_held
from holdfast.wire.peer import Peer

_CLOSING_SECONDS = 5.0
"""How long to wait until another process has closed the session."""
_RETRY_SECONDS = 0.1


async def reopen_session(
    host: Host, peer: Peer, session_id: str, options: OpenOptions, door: EditorDoor, *, replay: bool
) -> EditorSession:
    """Open the session here or, if another process has it open, attach to it. The caller must call `start` on the returned session.

    Raises SESSION_HELD if the other process does not answer.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + _CLOSING_SECONDS
    wait_seconds = host.settings.links.wait_seconds
    while True:
        owner = await host.find_owner(session_id, options)
        try:
            if owner is None:
                session = await host.reopen(session_id, options)
                return OwnSession(session, door, peer, replay=replay, wait_seconds=wait_seconds)
            attached = AttachedSession(owner, door, peer, wait_seconds=wait_seconds)
            await attached.attach(
                host.settings.data_dir, replay=replay, client_servers=options.client_servers
            )
            return attached
        except HoldfastError as error:
            if not await _is_changing_owner(host, error, session_id, options, owner):
                raise
            if now() > deadline:
                raise error if owner is None else session_held(owner.lease) from None
        await asyncio.sleep(_RETRY_SECONDS)


async def _is_changing_owner(
    host: Host, error: HoldfastError, session_id: str, options: OpenOptions, owner: OtherOwner | None
) -> bool:
    """Return whether the session could not be opened because a process has just opened it, or is closing it."""
    if error.code is codes.UNKNOWN_SESSION:
        return owner is not None  # the owner is closing the session
    if error.code is not codes.SESSION_HELD or "pid" not in error.details:  # the error names no owner
        return False
    if owner is None:
        return True
    current = await host.find_owner(session_id, options)
    return current is None or current.lease.epoch != owner.lease.epoch
