"""The last messages that a page logged, and its last requests."""

import json
import time
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.fence import one_line
from holdfast.builtin.stage.limits import MAX_CONSOLE, MAX_HEADER, MAX_HEADERS, MAX_REQUESTS, MAX_TEXT
from holdfast.builtin.stage.recent_items import RecentItems
from holdfast.builtin.stage.url_rules import without_credentials

_MAX_ARGUMENTS = 20
_HIDDEN_HEADERS = (
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "x-auth-token",
)


@dataclass(slots=True)
class ConsoleLine:
    """Something that the page logged, or an error in its scripts."""

    level: str
    """`log`, `info`, `warning`, `error` and so on, as in the DevTools protocol."""
    text: str
    where: str
    """The address of the script and the line; empty if they are not known."""
    at: float
    """The browser's time stamp."""


@dataclass(slots=True)
class Request:
    """A request of the page."""

    id: str
    session: str
    method: str
    url: str
    kind: str
    """What is requested, such as `Document` or `Fetch`, as in the DevTools protocol."""
    started: float
    headers: dict[str, str]
    frame_id: str = ""
    status: int | None = None
    status_text: str = ""
    mime_type: str = ""
    response_headers: dict[str, str] = field(default_factory=dict[str, str])
    failure: str = ""
    size: int | None = None
    ended_at: float | None = None


class PageLog:
    """The last messages and requests of a tab, and the requests that have not ended."""

    def __init__(self) -> None:
        self.console: RecentItems[ConsoleLine] = RecentItems(MAX_CONSOLE)
        self.requests: RecentItems[Request] = RecentItems(MAX_REQUESTS)
        self.in_flight: dict[str, Request] = {}

    def on_event(self, session: str, event: msgspec.Struct) -> None:
        """Record an event about the console or a request; ignore all others."""
        match event:
            case cdp.RuntimeConsoleAPICalled(type=level, args=args, timestamp=at, stack_trace=stack):
                text = " ".join(_show(value) for value in args[:_MAX_ARGUMENTS])
                frames = stack.call_frames if stack else []
                where = f"{frames[0].url}:{frames[0].line_number + 1}" if frames else ""
                self._log(level, text, where, at)
            case cdp.RuntimeExceptionThrown(timestamp=at, exception_details=details):
                self._log("error", thrown_text(details), f"{details.url or ''}:{details.line_number + 1}", at)
            case cdp.LogEntryAdded(entry=entry):
                self._log(entry.level, entry.text, entry.url or "", entry.timestamp)
            case cdp.NetworkRequestWillBeSent():
                self._on_request(session, event)
            case cdp.NetworkResponseReceived(request_id=request_id, response=response):
                if request := self.in_flight.get(request_id):
                    request.status, request.status_text = response.status, response.status_text[:MAX_TEXT]
                    request.mime_type = response.mime_type[:MAX_TEXT]
                    request.response_headers = _kept_headers(response.headers)
            case cdp.NetworkLoadingFinished(request_id=request_id, encoded_data_length=size):
                if request := self.in_flight.pop(request_id, None):
                    request.size, request.ended_at = int(size), time.monotonic()
            case cdp.NetworkLoadingFailed(request_id=request_id, error_text=why, blocked_reason=blocked):
                if request := self.in_flight.pop(request_id, None):
                    request.failure, request.ended_at = blocked or why, time.monotonic()
            case cdp.NetworkWebSocketCreated(request_id=request_id, url=url):
                self.requests.add(
                    Request(
                        request_id,
                        session,
                        "GET",
                        without_credentials(url)[:MAX_TEXT],
                        "WebSocket",
                        time.monotonic(),
                        {},
                    )
                )
            case _:
                pass

    def _on_request(self, session: str, event: cdp.NetworkRequestWillBeSent) -> None:
        if event.request_id in self.in_flight and event.redirect_response is not None:
            redirected = self.in_flight.pop(event.request_id)
            redirected.status, redirected.ended_at = event.redirect_response.status, time.monotonic()
            redirected.response_headers = _kept_headers(event.redirect_response.headers)
        request = Request(
            event.request_id,
            session,
            event.request.method,
            without_credentials(event.request.url)[:MAX_TEXT],
            event.type or "",
            time.monotonic(),
            _kept_headers(event.request.headers),
            event.frame_id or "",
        )
        self.requests.add(request)
        if len(self.in_flight) >= MAX_REQUESTS:  # forget the oldest one
            self.in_flight.pop(next(iter(self.in_flight)))
        self.in_flight[event.request_id] = request

    def _log(self, level: str, text: str, where: str, at: float) -> None:
        self.console.add(ConsoleLine(level, text[:MAX_TEXT], without_credentials(where)[:MAX_TEXT], at))


def thrown_text(details: cdp.RuntimeExceptionDetails) -> str:
    """Describe what a script threw: an error, or any other value."""
    thrown = details.exception
    return details.text if thrown is None else thrown.description or f"{details.text} {_show(thrown)}"


def _kept_headers(headers: dict[str, Any]) -> dict[str, str]:
    """Keep the first headers, shortened to what an answer shows, and count the others. Values that may be secret are hidden."""
    first = islice(headers.items(), MAX_HEADERS)
    kept = {
        _cut(name): "(hidden)" if name.lower() in _HIDDEN_HEADERS else _cut(str(value))
        for name, value in first
    }
    return kept | {"…": f"{len(headers) - MAX_HEADERS} more"} if len(headers) > MAX_HEADERS else kept


def _cut(text: str) -> str:
    return text if len(text) <= MAX_HEADER else one_line(text, MAX_HEADER)


def _show(value: cdp.RuntimeRemoteObject) -> str:
    if value.type == "string":
        return str(value.value)[:MAX_TEXT]
    if value.description is not None:
        return value.description[:MAX_TEXT]
    return json.dumps(value.value)[:MAX_TEXT] if value.value is not None else value.type
