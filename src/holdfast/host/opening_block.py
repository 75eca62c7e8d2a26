"""What `host.open` and `host.reopen` return: await it for the session, or use it in a block."""

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.model.coroutine_wrapper import CoroutineWrapper
from holdfast.session.session import Session


class OpeningBlock(CoroutineWrapper[Session], AbstractAsyncContextManager[Session]):
    """A session that is opened when this is awaited, or entered: `async with host.reopen(session_id) as session:`."""

    def __init__(self, opening: Coroutine[Any, Any, Session], usage: str) -> None:
        """`usage` is what to write: `async with host.reopen(…) as session:`."""
        super().__init__(opening)
        self._usage = usage
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        self._session = await self
        return await self._session.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # a type checker finds these mistakes by itself

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"`{name}` can be used once the session is open. Write: {self._usage}")

        def __enter__(self) -> NoReturn:
            self.close()
            raise TypeError(f"This block is async. Write: {self._usage}")

        def __exit__(self, *error: object) -> None: ...
