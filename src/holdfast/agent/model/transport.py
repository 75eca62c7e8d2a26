"""The HTTP transport to the endpoints of models. It follows no redirects, limits the size of answers, and retries failed requests."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address

import httpx2

from holdfast.agent.model import failures
from holdfast.agent.model.answer_events import LONG_EVENT_BYTES, EventSplitter, pause_after_event
from holdfast.agent.model.config import ModelConfig, ModelLimits
from holdfast.agent.model.retries import retry_delay
from holdfast.connect.http.proxies import Proxies
from holdfast.model.blocked_addresses import embedded_ipv4, parse_address
from holdfast.model.errors import HoldfastError
from holdfast.wire.parse_threads import PARSE_THREADS

_MAX_ERROR_BYTES = 64 * 1024
_EVENTS_AT_ONCE = 16  # how many events the provider's library decodes before the event loop does other work
_FORMAT_HEADERS = frozenset(
    {
        "host",
        "accept",
        "connection",
        "content-length",
        "content-type",
        "transfer-encoding",
        "anthropic-version",
        "anthropic-beta",
    }
)
_LAST_EVENTS = (b"[DONE]", b"message_stop", b"response.completed", b"response.incomplete")
_OVERFLOW_WORDS = (b"context_length", b"context window", b"maximum context", b"prompt is too long")
_METADATA_HOSTS = frozenset(
    {"metadata.google.internal", "metadata", "instance-data", "metadata.azure.internal"}
)
_METADATA_ADDRESSES = frozenset(
    map(ip_address, ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254", "192.0.0.192"))
)


class Exchange:
    """One request to a model, with its retries: when its answer last made progress, and why the request failed."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.failure: HoldfastError | None = None
        """The error to report, if the request failed."""
        self.has_images = False
        """Whether the request has images."""
        self.attempts = 0
        self.sent_bytes = 0
        """The size of the request."""
        self.last_event = b""
        """The last event of the answer."""
        self.last_progress = asyncio.get_running_loop().time()

    @property
    def has_ended(self) -> bool:
        """Whether the last event says that the answer is complete."""
        return any(mark in self.last_event for mark in _LAST_EVENTS)

    @property
    def limits(self) -> ModelLimits:
        return self.config.limits


current_exchange: ContextVar[Exchange | None] = ContextVar("holdfast_model_exchange", default=None)


class EndpointError(httpx2.TransportError):
    """The request failed; the exchange has the reason."""


class LimitedTransport(httpx2.AsyncBaseTransport):
    """Sends requests within the limits of the `current_exchange`."""

    def __init__(self) -> None:
        self._proxies = Proxies()
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and retry it if the status of the answer says that this may help."""
        exchange = current_exchange.get() or Exchange(ModelConfig(name=""))
        host = request.url.host
        if _is_metadata_address(host):
            raise _fail(exchange, failures.blocked_address(host))
        exchange.sent_bytes = int(request.headers.get("content-length", 0))
        request.headers["accept-encoding"] = "identity"  # a few compressed bytes can expand to gigabytes
        while True:
            exchange.attempts += 1
            try:
                response = await self._transport_for(request.url).handle_async_request(request)
            except httpx2.TransportError as error:
                address = f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}"
                raise _fail(
                    exchange, failures.unreachable(exchange.config, address, _why_unreachable(error))
                ) from error
            delay = retry_delay(response, exchange.attempts, exchange.limits)
            if delay is None:
                return await _with_limited_body(response, exchange, host)
            await response.aclose()
            await asyncio.sleep(delay)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    def _transport_for(self, url: httpx2.URL) -> httpx2.AsyncHTTPTransport:
        proxy = self._proxies.find_for(str(url))
        if proxy not in self._transports:
            limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
            self._transports[proxy] = httpx2.AsyncHTTPTransport(proxy=proxy or None, limits=limits)
        return self._transports[proxy]


class CustomEndpointTransport(httpx2.AsyncBaseTransport):
    """Sends requests to `model.base_url` or Ollama, with the key of that endpoint and the headers that its API needs.

    All other headers are removed: providers' clients add headers for the provider, such as `OPENAI_CUSTOM_HEADERS`.
    """

    def __init__(self, transport: LimitedTransport, headers: Mapping[str, str]) -> None:
        self._transport = transport
        self._headers = headers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        kept = {name: value for name, value in request.headers.items() if name.lower() in _FORMAT_HEADERS}
        request.headers = httpx2.Headers({**kept, "user-agent": "holdfast", **self._headers})
        return await self._transport.handle_async_request(request)


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of an answer. Raises `EndpointError` if it exceeds a limit."""

    def __init__(self, body: httpx2.AsyncByteStream, exchange: Exchange, host: str) -> None:
        self._body = body
        self._exchange = exchange
        self._host = host

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange, limits = self._exchange, self._exchange.limits
        size = 0
        splitter = EventSplitter(limits)
        try:
            async for chunk in self._body:
                size += len(chunk)
                if size > limits.max_response_bytes:
                    raise failures.too_large(f"it has more than {limits.max_response_bytes} bytes")
                complete = splitter.add(chunk)
                if complete:
                    exchange.last_event = complete[-1]
                async for events in self._checked(complete):
                    yield events
            rest = splitter.take_rest()
            exchange.last_event = rest[-1] if rest else exchange.last_event
            async for events in self._checked(rest):
                yield events
        except failures.LimitReachedError as error:
            raise _fail(exchange, error) from None
        except httpx2.TransportError as error:
            raise _fail(exchange, failures.cut_off(self._host)) from error

    async def _checked(self, events: list[bytes]) -> AsyncIterator[bytes]:
        """Check these events, and yield a few at a time, with pauses in which the event loop does other work."""
        exchange = self._exchange
        ready: list[bytes] = []
        pause = 0.0
        try:
            for event in events:
                args = (event, exchange.limits, exchange.sent_bytes)
                is_long = len(event) > LONG_EVENT_BYTES
                pause += (
                    await PARSE_THREADS.run(pause_after_event, *args) if is_long else pause_after_event(*args)
                )
                ready.append(event)
                if pause or len(ready) >= _EVENTS_AT_ONCE:
                    yield b"".join(ready)
                    ready.clear()
                    await asyncio.sleep(pause)
                    pause = 0.0
        except failures.LimitReachedError:
            if ready:
                yield b"".join(ready)
            raise
        if ready:
            yield b"".join(ready)

    async def aclose(self) -> None:
        await self._body.aclose()


async def _with_limited_body(response: httpx2.Response, exchange: Exchange, host: str) -> httpx2.Response:
    """Return the answer with a limited body. Of an error, only the status is passed on: its body may repeat the key or the conversation."""
    body = response.stream
    assert isinstance(body, httpx2.AsyncByteStream)
    status = response.status_code
    if status < 300 and response.headers.get("content-encoding", "identity") == "identity":
        return httpx2.Response(
            status,
            headers=response.headers,
            stream=_LimitedStream(body, exchange, host),
            extensions=response.extensions,
        )
    if status < 300:
        await response.aclose()
        raise _fail(exchange, failures.unreadable(host))
    if status < 400:
        await response.aclose()
        raise _fail(exchange, failures.redirected(host))
    start = await _read_start(body)
    await response.aclose()
    if status in (400, 413, 422) and any(words in start.lower() for words in _OVERFLOW_WORDS):
        exchange.failure = failures.context_full(exchange.config)
    elif exchange.has_images and status in (400, 415, 422):
        exchange.failure = failures.images_refused(exchange.config, status, host)
    else:
        exchange.failure = failures.http_error(exchange.config, status, host)
    return httpx2.Response(
        status,
        headers={"content-type": "application/json"},
        content=b'{"type":"error","error":{"type":"error","message":"HTTP %d"}}' % status,
    )


async def _read_start(body: httpx2.AsyncByteStream) -> bytes:
    start = b""
    try:
        async with asyncio.timeout(5):
            async for chunk in body:
                start += chunk
                if len(start) > _MAX_ERROR_BYTES:
                    break
    except (TimeoutError, httpx2.TransportError):
        pass  # the status alone is enough
    return start[:_MAX_ERROR_BYTES]


def _why_unreachable(error: httpx2.TransportError) -> str:
    """Say why there is no answer. The library's own text is not used, because it differs between versions."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "it refused the connection"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "its name is not known"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "no encrypted connection could be made"
    if isinstance(error, httpx2.ConnectTimeout):
        return "it did not accept the connection in time"
    if isinstance(error, httpx2.ConnectError):
        return "the connection failed"
    return "it ended the connection before it answered"


def _is_metadata_address(host: str) -> bool:
    name = host.strip("[]").rstrip(".").lower().partition("%")[0]
    address = parse_address(name)
    if address is None:
        return name in _METADATA_HOSTS
    inner = (address.ipv4_mapped or embedded_ipv4(address)) if isinstance(address, IPv6Address) else None
    return (inner or address) in _METADATA_ADDRESSES


def _fail(exchange: Exchange, failure: HoldfastError) -> EndpointError:
    exchange.failure = failure
    return EndpointError(failure.message)
