"""Finds the browser, the stages, the tabs and the elements of each caller. A caller is an *owner* of its browser."""

import asyncio
import re
from dataclasses import dataclass, field

from holdfast.builtin.stage.browser import Browser, IdCounters, Stage
from holdfast.builtin.stage.codes import NO_ELEMENT, TAB_GONE
from holdfast.builtin.stage.first_browser import FirstBrowser
from holdfast.builtin.stage.tab import Tab
from holdfast.model import codes
from holdfast.toolkit import Call, DrivenSessions, ToolError

_REF = re.compile(r"\[?(?:t(\d{1,9}))?e(\d{1,9})\]?")


@dataclass(slots=True)
class _Owner:
    """A caller: its browser, the stage that it used last, and the counters for its ids."""

    counters: IdCounters = field(default_factory=IdCounters)
    browser: Browser | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_stage: str = ""


class Owners:
    """The browsers of all callers. A caller finds only its own stages, tabs and refs."""

    def __init__(self, first_browser: FirstBrowser) -> None:
        self.first_browser = first_browser
        self.stages: DrivenSessions[Stage] = DrivenSessions(self._dispose)
        self._owners: dict[str, _Owner] = {}

    async def get_or_start_browser(self, call: Call) -> Browser:
        """Return the caller's browser. Start it if it is not running."""
        owner = self._owners.setdefault(call.owner, _Owner())
        async with owner.lock:
            browser = owner.browser
            if browser is not None and browser.connection.closed.is_set():
                await self._forget_lost(browser)
                browser = None
            if browser is None:
                process = await self.first_browser.launch()
                browser = Browser(process.connection, process, owner.counters)
                browser.start()
                owner.browser = browser
                browser.on_close = lambda: self._clear_browser(owner, browser)
            return browser

    def counters(self, call: Call) -> IdCounters:
        """Return the counters for the ids of the caller's stages and tabs. No id is used twice."""
        return self._owners.setdefault(call.owner, _Owner()).counters

    def add(self, call: Call, stage: Stage) -> None:
        """Give a new stage to the caller."""
        self.stages.add(stage.id, stage)
        self._owners[call.owner].last_stage = stage.id

    def stage(self, call: Call, stage_id: str = "") -> Stage:
        """Return the caller's stage with this id, or the one that was used last. Raises BROWSER_GONE if its browser has ended."""
        stage = self.stage_even_if_lost(call, stage_id)
        stage.browser.check()
        return stage

    def stage_even_if_lost(self, call: Call, stage_id: str = "") -> Stage:
        """Return the caller's stage with this id, or the one that was used last, even if its browser has ended."""
        ids = self.stages.ids()
        owner = self._owners.get(call.owner)
        if not stage_id and owner is not None and owner.last_stage in ids:
            stage_id = owner.last_stage
        if not stage_id and len(ids) > 1:
            stage_id = ids[-1]
        if not ids:
            raise ToolError(codes.NOT_RUNNING, "No stage is open. Call open first.")
        stage = self.stages.get(stage_id)
        if owner is not None:
            owner.last_stage = stage.id
        return stage

    def tab(self, call: Call, tab_id: str = "") -> tuple[Stage, Tab]:
        """Return the caller's tab with this id, or the one that was used last, and its stage."""
        if not tab_id:
            stage = self.stage(call)
            return stage, stage.tab()
        for stage_id in self.stages.ids():
            stage = self.stages.get(stage_id)
            if tab_id in stage.tabs:
                self._owners[call.owner].last_stage = stage_id
                stage.browser.check()
                stage.current = stage.tabs[tab_id]
                return stage, stage.current
        raise ToolError(TAB_GONE, f"There is no tab {tab_id[:40]!r}.")

    def element(self, call: Call, ref: str) -> tuple[Stage, Tab, int]:
        """Return the stage, the tab and the ref number of the element that a ref names."""
        matched = _REF.fullmatch(ref.strip())
        if matched is None:
            raise ToolError(NO_ELEMENT, f"{ref[:40]!r} is not a ref. Refs look like e12.")
        stage, tab = self.tab(call, f"t{matched[1] or 1}")
        return stage, tab, int(matched[2])

    async def _dispose(self, stage: Stage) -> None:
        await stage.close()

    async def _forget_lost(self, browser: Browser) -> None:
        """Remove the stages of a browser that has ended."""
        for stage_id in self.stages.ids():
            if self.stages.get(stage_id).browser is browser:
                await self.stages.remove(stage_id)
        await browser.close()

    def _clear_browser(self, owner: _Owner, browser: Browser) -> None:
        if owner.browser is browser:
            owner.browser = None
