"""List the tools that a session would have, without opening one."""

import asyncio
import logging

from holdfast.connect.catalog import CatalogTool, build_catalog
from holdfast.connect.connector import Connector
from holdfast.connect.scope import Scope
from holdfast.host.admission import SessionPlan
from holdfast.model.errors import HoldfastError
from holdfast.model.server import ServerSpec
from holdfast.model.visible_text import to_line
from holdfast.wire.mcp.tools import Tool

log = logging.getLogger(__name__)


async def list_tools(
    plan: SessionPlan, connector: Connector, scope: Scope, seconds: float
) -> tuple[CatalogTool, ...]:
    """Start the servers of the planned session, list their tools, and close them. Each has this many seconds to list its tools."""
    admitted = await plan.admit()

    async def list_one(spec: ServerSpec) -> tuple[ServerSpec, tuple[Tool, ...]]:
        try:
            async with connector.open(spec, scope) as connection:
                tools = await connection.list_tools(timeout=seconds)
                return spec, (await plan.screen(spec, tools, admitted.mask, scope.throttle)).offered
        except HoldfastError as error:
            log.warning(
                "could not list the tools of %s: %s",
                spec.name,
                to_line(error.message),
                extra={"server": spec.name, "reason": error.message},
            )
            return spec, ()

    return build_catalog(await asyncio.gather(*map(list_one, admitted.resolution.servers))).tools
