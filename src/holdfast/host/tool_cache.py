"""Which tools lazy servers had when they were last listed, so that their tools can be offered before they are started."""

from collections.abc import Sequence

from holdfast.builtin.servers import AGENT_SERVERS, known_tools
from holdfast.host.admission import SessionPlan
from holdfast.host.approvals import Approvals
from holdfast.masking.mask import Mask
from holdfast.model.server import ServerSpec
from holdfast.resolve.screen_tools import ScreenedTools
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.mcp.tools import Tool

_MAX_SERVERS = 256
_Key = tuple[str, str, str]
"""A user's id, the name of a server, and the digest of its spec."""


class ToolCache:
    """The tools of the lazy servers of a host.

    The tools of the built-in server `stage` are always known. The tools of other servers are in memory or, if they are pinned, in the store.
    """

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._last: dict[_Key, ScreenedTools] = {}  # in the order in which they were listed

    async def screen(
        self,
        spec: ServerSpec,
        tools: Sequence[Tool],
        plan: SessionPlan,
        mask: Mask,
        throttle: LoopThrottle,
    ) -> ScreenedTools:
        """Decide which tools of a server the session may call, and remember them if the server is lazy."""
        screened = await plan.screen(spec, tools, mask, throttle)
        if spec.is_lazy:
            key = _key(spec, plan)
            self._last.pop(key, None)
            self._last[key] = screened
            if len(self._last) > _MAX_SERVERS:
                del self._last[next(iter(self._last))]
        return screened

    async def recall(self, spec: ServerSpec, plan: SessionPlan) -> ScreenedTools | None:
        """The tools that a lazy server listed last, as screened; None if they are not known."""
        user_id = plan.context.user_id or ""
        is_for_agent = plan.options.extra_builtins >= AGENT_SERVERS
        if built_in := known_tools(spec, plan.context, is_for_agent=is_for_agent):
            return await self._approvals.screen(spec, built_in, user_id=user_id)
        known = self._last.get(_key(spec, plan))
        if known is not None or not spec.pins_tools:
            return known
        pinned = await self._approvals.pinned_tools(spec, user_id=user_id)
        return await self._approvals.screen(spec, pinned, user_id=user_id) if pinned else None


def _key(spec: ServerSpec, plan: SessionPlan) -> _Key:
    return plan.context.user_id or "", spec.name, spec.digest
