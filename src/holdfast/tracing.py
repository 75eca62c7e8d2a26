"""OpenTelemetry spans. OpenTelemetry is imported only if tracing is on."""

import logging
import os
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider
    from opentelemetry.trace import TracerProvider

T = TypeVar("T")
Attributes = Mapping[str, str | int | float | bool | tuple[str, ...]]
SESSION_KEY = "gen_ai.conversation.id"
_MAX_TEXT = 256  # characters of a name or an attribute
_EXPORT_SECONDS = 5  # how long one export may take
INSTALL_HINT = "Traces need OpenTelemetry. Install it with `pip install 'holdfast[otel]'`."


class Span:
    """One span. It has no prompts, arguments, results or error messages, which may contain secrets."""

    __slots__ = ("_session_id", "_span")

    def __init__(self, span: "trace.Span", session_id: str = "") -> None:
        self._span = span
        self._session_id = session_id

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(_clean(attributes, self._session_id))

    def fail(self, kind: str) -> None:
        """Mark the span as failed. `kind` is a code, `tool_error` or the name of an exception."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        self._span.end()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the current span, and so the parent of spans that begin in the block."""
        from opentelemetry import context, trace

        token = context.attach(trace.set_span_in_context(self._span))
        try:
            yield
        finally:
            context.detach(token)

    async def run(self, work: Awaitable[T]) -> T:
        """Await the work while this is the current span."""
        with self.active():
            return await work

    @property
    def meta(self) -> dict[str, str]:
        """The trace context for the `_meta` of a request: `traceparent` and `tracestate`."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._as_context())
        return carrier

    def _as_context(self) -> "Context":
        from opentelemetry import trace

        return trace.set_span_in_context(self._span)


class Tracer:
    """Begins spans."""

    def __init__(self, provider: "TracerProvider") -> None:
        from holdfast import __version__

        self._tracer = provider.get_tracer("holdfast", __version__)

    def start(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: Literal["internal", "client"] = "internal",
        parent: Span | None = None,
        remote: Mapping[str, object] | None = None,
    ) -> Span:
        """Begin a span. Its parent is the one that `remote` (a client's `_meta`) names, else the current one, else `parent`."""
        from opentelemetry.trace import SpanKind

        session_id = str(attributes.get(SESSION_KEY, ""))
        span = self._tracer.start_span(
            _shorten(name, session_id),
            context=_parent_context(parent, remote),
            kind=SpanKind.CLIENT if kind == "client" else SpanKind.INTERNAL,
            attributes=_clean(attributes, session_id),
            record_exception=False,
            set_status_on_exception=False,
        )
        return Span(span, session_id)


def _clean(attributes: Attributes, session_id: str) -> Attributes:
    """The attributes, short and masked: servers and model endpoints choose some of them."""
    return {
        key: _shorten(value, session_id)
        if isinstance(value, str)
        else tuple(_shorten(item, session_id) for item in value)
        if isinstance(value, tuple)
        else value
        for key, value in attributes.items()
    }


def _shorten(text: str, session_id: str) -> str:
    from holdfast.masking import log_mask

    return log_mask.mask_start(text, _MAX_TEXT, session_id)


def _parent_context(parent: Span | None, remote: Mapping[str, object] | None) -> "Context | None":
    """The context of the parent span; None for the current one."""
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if remote and isinstance(sent := remote.get("traceparent"), str):
        # Without `tracestate`: a client may write any text into it, and the collector would get that text.
        remote_context = TraceContextTextMapPropagator().extract({"traceparent": sent}, context=Context())
        if trace.get_current_span(remote_context).get_span_context().is_valid:
            return remote_context
    if trace.get_current_span().get_span_context().is_valid or parent is None:
        return None
    return parent._as_context()  # pyright: ignore[reportPrivateUsage]


def export_to(url: str) -> "SdkProvider":
    """A provider that sends spans to the collector at this address, over OTLP/HTTP. The caller shuts it down.

    Raise ImportError if OpenTelemetry is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from holdfast import __version__

    service = {SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or "holdfast", SERVICE_VERSION: __version__}
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces", timeout=_EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    # A failed export is logged as an error. The warnings about each of its attempts are left out.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
    return provider
