"""Whether and where the sessions of a host are traced."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.masking.likely_secrets import mask_listing
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.worker_threads import WorkerThreads
from holdfast.tracing import INSTALL_HINT, Tracer, export_to

if TYPE_CHECKING:
    from holdfast.tracing import TracerProvider

log = logging.getLogger(__name__)
_FLUSH_SECONDS = 2.0
_THREAD = WorkerThreads("traces", threads=1)


@asynccontextmanager
async def open_tracer(provider: "TracerProvider | None", otlp_url: str) -> AsyncIterator[Tracer | None]:
    """The tracer of the application's own provider, else one that exports to this address, else None.

    At the end, spans that are not exported yet are sent, within two seconds.
    """
    if provider is not None:
        yield Tracer(provider)
        return
    if not otlp_url:
        yield None
        return
    if not otlp_url.startswith(("http://", "https://")):
        raise HoldfastError(
            codes.BAD_SETTINGS,
            f"traces.otlp_url must begin with http:// or https://, not {mask_listing(otlp_url)[:80]!r}.",
        )
    try:
        exporting = await _THREAD.run(export_to, otlp_url)
    except ImportError:
        raise HoldfastError(
            codes.BAD_SETTINGS, f"traces.otlp_url is set, but cannot be used. {INSTALL_HINT}"
        ) from None
    try:
        yield Tracer(exporting)
    finally:
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await _THREAD.run(exporting.shutdown)
        except TimeoutError:
            log.warning("the last spans were not sent: the collector at traces.otlp_url did not answer")
