"""Let the user of an MCP client log in to a remote server: the client shows the address of the login page (URL elicitation)."""

import asyncio
import contextvars
import secrets
from typing import Any

import msgspec

from holdfast.gateway.client_call import ClientCall
from holdfast.gateway.credential import Credential
from holdfast.host.host import Host
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from holdfast.wire.messages import PeerError, Raw
from holdfast.wire.strict_json import DECODE_ERRORS

LOGIN_SECONDS = 300.0


class _Answer(msgspec.Struct):
    action: str = ""


class Logins:
    """The logins of one client session."""

    def __init__(self, host: Host, credential: Credential) -> None:
        self._host = host
        self._credential = credential
        self._running: asyncio.Lock | None = None  # made when it is needed: most sessions have no login

    def can_ask(self, session: Session, call: ClientCall) -> bool:
        """Whether the user of this client may be asked to log in.

        All sessions of the person who runs Holdfast use the login. So only clients with this person's own tokens are asked, and
        only in direct sessions that may change something.
        """
        elicitation = call.client_info.capabilities.get("elicitation")
        has_urls = isinstance(elicitation, dict) and "url" in elicitation
        is_own = not self._credential.from_issuer and self._credential.user_id is None
        may_change = (
            session.context.trust_level is Trust.DIRECT and session.permission.mode is not Mode.READ_ONLY
        )
        return has_urls and is_own and may_change

    async def ask(self, session: Session, server: str, call: ClientCall) -> bool:
        """Show the login page of a server, and wait until the user has logged in. False if the user did not."""
        if not self.can_ask(session, call):
            return False
        self._running = self._running or asyncio.Lock()
        async with self._running:
            page: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            login = asyncio.create_task(
                self._host.log_in(session.server(server), page.set_result, LOGIN_SECONDS),
                # The connection of the login belongs to no request.
                context=contextvars.Context(),
            )
            try:
                await asyncio.wait([page, login], return_when=asyncio.FIRST_COMPLETED)
                if not page.done():
                    await login  # another session has logged in already, or the server cannot be reached
                    return True
                if not await _is_accepted(server, page.result(), call):
                    return False
                await login
            except HoldfastError:
                return False
            finally:
                login.cancel()
                await asyncio.wait([login])
        return True


async def _is_accepted(server: str, url: str, call: ClientCall) -> bool:
    # The login page redirects the browser to a port of this machine.
    params: dict[str, Any] = {
        "mode": "url",
        "message": f"Holdfast: the server {server!r} asks you to log in. Open this page in a browser on the machine that runs Holdfast.",
        "url": url,
        "elicitationId": secrets.token_hex(16),
    }
    try:
        answer = await call.ask("elicitation/create", Raw(msgspec.json.encode(params)))
        return msgspec.json.decode(answer, type=_Answer).action == "accept"
    except (PeerError, *DECODE_ERRORS):
        return False
