"""What `host.open` and `host.reopen` return: await it for the session, or use it in a block."""

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from holdfast.model.coroutine_wrapper import CoroutineWrapper
from holdfast.session.session import Session


class OpeningBlock(CoroutineWrapper[Session], AbstractAsyncContextManager[Session]):
    """A session that is opened when this is awaited, or entered: `async with host.reopen(session_id) as session:`."""

    def __init__(self, opening: Coroutine[Any, Any, Session]) -> None:
        super().__init__(opening)
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        self._session = await self
        return await self._session.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.__aexit__(kind, error, trace)
