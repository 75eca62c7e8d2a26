"""What a server says unasked: questions, the progress of a call, news of its tools."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.connect.asks import Asks
from holdfast.wire.frame import Notification, Request

Progress: TypeAlias = Callable[[Mapping[str, Any]], None]


class Hearing:
    """Questions are answered as the session allows, progress goes to whoever listens, the rest is passed over."""

    def __init__(self, asks: Asks) -> None:
        self.asks = asks
        self._tokens = itertools.count(1)
        self._listeners: dict[int, Progress] = {}

    async def answer(self, request: Request) -> Any:
        """A question of the server's."""
        return await self.asks.answer(request.method, request.params)

    def hear(self, notification: Notification) -> None:
        """A notification of the server's."""
        match notification.method:
            case "notifications/progress":
                params: object = msgspec.json.decode(notification.params)
                if isinstance(params, dict):
                    self.tell(cast(Mapping[str, Any], params))
            case "notifications/tools/list_changed":
                self.asks.tools_changed()
            case _:
                pass

    @contextmanager
    def listening(self, progress: Progress) -> Iterator[int]:
        """Hear of the progress of one call, under the token given."""
        token = next(self._tokens)
        self._listeners[token] = progress
        try:
            yield token
        finally:
            del self._listeners[token]

    def tell(self, params: Mapping[str, Any]) -> None:
        """Pass a report of progress on; of a call that is over, nobody wants to know."""
        token = params.get("progressToken")
        listener = self._listeners.get(token) if isinstance(token, int) else None
        if listener is not None:
            listener(params)
