"""The base class of the stage tools: finding the caller's tabs and elements, running actions, and answering with what changed."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from holdfast.builtin.stage import actions, answers
from holdfast.builtin.stage.answers import page_answer
from holdfast.builtin.stage.browser import Stage
from holdfast.builtin.stage.codes import STALE_REF
from holdfast.builtin.stage.files import FILE_THREADS, SessionFiles
from holdfast.builtin.stage.limits import LOAD_SECONDS
from holdfast.builtin.stage.owners import Owners
from holdfast.builtin.stage.settle import TabState, settle, tab_state
from holdfast.builtin.stage.tab import Tab
from holdfast.builtin.stage.take_snapshot import take_snapshot
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.meta_keys import READ_ONLY_KEY
from holdfast.toolkit import Call, Meta, ToolError
from holdfast.toolkit.sampling import Root
from holdfast.wire.messages import Raw

Ref = Annotated[str, "Such as e12."]
OptionalRef = Annotated[str, "A ref; else the page."]
TabId = Annotated[str, "Such as t2; else the last used."]
Seconds = Annotated[float, Meta(gt=0, le=60)]
Budget = Annotated[int, "Tokens of the answer.", Meta(ge=200, le=50_000)]

PAGE_BUDGET = 1500  # tokens of an answer that shows a page
_ACTION_BUDGET = 500  # tokens of an answer that shows what an action changed


def with_single_spaces(text: str) -> str:
    """Return a search text with single spaces, because an outline has no others."""
    return " ".join(text.split())


class _RootsMeta(msgspec.Struct):
    read_only: list[str] | None = msgspec.field(default=None, name=READ_ONLY_KEY)


class _Roots(msgspec.Struct):
    roots: list[Root]
    meta: _RootsMeta = msgspec.field(default_factory=_RootsMeta, name="_meta")


class StageTools:
    """The base class for the handlers of a group of related tools."""

    def __init__(self, owners: Owners, files: SessionFiles) -> None:
        self._owners = owners
        self._files = files

    def _target(self, call: Call, ref: str, tab: str) -> tuple[Stage, Tab, int | None]:
        """Return the stage, the tab and the ref number of a ref; without a ref, the tab with this id, and no number."""
        if ref:
            return self._owners.element(call, ref)
        stage, found_tab = self._owners.tab(call, tab)
        return stage, found_tab, None

    async def _session_files(self, call: Call) -> SessionFiles:
        """Return which files the session may use: in the server's working directory, and in the roots that the client lists.

        For a sandboxed session, the host lists all roots, and what may not be changed in them.
        """
        try:
            listed = _decode_roots(await call.client_requests.request("roots/list", {}, needs="roots"))
        except HoldfastError as error:
            if error.code is not codes.MISSING_CAPABILITY:
                raise
            return self._files
        folders = [str(root.path) for root in listed.roots if root.path is not None]
        if listed.meta.read_only is not None:
            return await FILE_THREADS.run(self._files.only_in, folders, listed.meta.read_only)
        return await FILE_THREADS.run(self._files.with_roots, folders)

    async def _act(
        self, call: Call, ref: str, act: Callable[[Tab, Any], Any], tab: str = ""
    ) -> dict[str, Any]:
        """Run `act` on a tab and the ref number of an element, or None; wait for its consequences, and return what changed."""
        stage, found_tab, ref_number = self._target(call, ref, tab)
        async with found_tab.lock:
            if not found_tab.snapshots and not found_tab.is_over:
                await take_snapshot(found_tab)
            before = tab_state(found_tab)
            if ref_number is not None:
                try:
                    found_tab.find_ref(ref_number)
                except ToolError as error:
                    if error.code is STALE_REF:
                        raise await actions.stale_error(found_tab, ref_number) from None
                    raise
            await act(found_tab, ref_number)
            await settle(found_tab, before, LOAD_SECONDS)
            return await self._changes(stage, found_tab)

    async def _changes(self, stage: Stage, tab: Tab) -> dict[str, Any]:
        """Return what changed in a tab since the last snapshot; the whole page if it is another page."""
        if tab.is_closed:
            return page_answer(stage, [], _ACTION_BUDGET, closed=tab.id, tabs=list(stage.tabs))
        if tab.is_waiting:
            return page_answer(stage, [], _ACTION_BUDGET, tab=tab.id, loaded="loading")
        earlier = next((kept for kept in reversed(tab.snapshots.values()) if not kept.is_part), None)
        taken = await take_snapshot(tab)
        if earlier is not None and earlier.document == taken.document:
            return answers.changes_answer(stage, tab, earlier, taken, _ACTION_BUDGET)
        return answers.snapshot_answer(stage, tab, taken, PAGE_BUDGET)

    async def _show(self, stage: Stage, tab: Tab, budget: int, /, **facts: Any) -> dict[str, Any]:
        """Return an answer with the whole page, and with these facts. `loaded` is shown only if the page is still loading."""
        if facts.get("loaded") == "loaded":
            del facts["loaded"]
        elif tab.is_waiting:
            return page_answer(stage, [], budget, tab=tab.id, **facts)
        taken = await take_snapshot(tab)
        if not taken.lines and taken.url != "about:blank":  # the page's scripts have not shown anything yet
            await settle(tab, TabState(navigations=tab.navigations), LOAD_SECONDS)
            taken = await take_snapshot(tab)
        return answers.snapshot_answer(stage, tab, taken, budget, **facts)


def _decode_roots(raw: Raw) -> _Roots:
    try:
        return msgspec.json.decode(raw, type=_Roots)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ToolError(codes.BAD_ANSWER, f"The client sent invalid roots: {error}.") from None
