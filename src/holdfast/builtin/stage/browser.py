"""A browser and its stages. Each stage is a browser context: it has its own cookies, storage, downloads and tabs."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import CdpError, Connection, ConnectionLostError, NoAnswerError
from holdfast.builtin.stage.codes import BROWSER_GONE, TAB_GONE, TOO_MANY_TABS, browser_failures
from holdfast.builtin.stage.dialogs import Dialogs
from holdfast.builtin.stage.downloads import Download, Downloads
from holdfast.builtin.stage.files import list_downloads, make_folder_in_browser, remove_download
from holdfast.builtin.stage.launch import BrowserProcess
from holdfast.builtin.stage.limits import MAX_KEPT_ANSWERS, MAX_STAGES, MAX_TABS, MAX_TEXT
from holdfast.builtin.stage.notices import Notices
from holdfast.builtin.stage.tab import Tab
from holdfast.model.errors import HoldfastError
from holdfast.model.worker_threads import WorkerThreads
from holdfast.toolkit import ToolError

_CLOSE_SECONDS = 0.7
_OPEN_SECONDS = 10.0
_DOWNLOAD_CHECK_SECONDS = 1.0
_THREADS = WorkerThreads("stage-downloads", threads=1)
_ATTACHED = ""
"""The context id of the only stage of an attached browser. This stage has the tabs of all contexts."""
# Types of DevTools targets that are tabs.
_TAB_TYPES = ("page",)
_ATTACHED_TAB_TYPES = ("page", "webview")


class Stage:
    """One browser context of one caller, with its tabs, dialogs and downloads. An attached stage has the tabs of all contexts."""

    def __init__(self, browser: "Browser", stage_id: str, context_id: str, download_folder: str = "") -> None:
        self.browser = browser
        self.id = stage_id
        self.context_id = context_id
        self.download_folder = download_folder
        """The path of the folder inside the browser's folder; empty if the browser is attached."""
        self.tabs: dict[str, Tab] = {}
        self.current: Tab | None = None
        self.dialogs = Dialogs()
        self.downloads = Downloads()
        self.notices = Notices()
        self.kept_lines: OrderedDict[str, Sequence[str]] = OrderedDict()
        """The lines of answers that did not fit into their budget, by the id in the answer's cursor."""
        self._kept_count = 0
        self.is_attached = False
        self.upload_count = 0
        self.closed_tabs = 0
        """How many tabs were closed when a page opened them, because the stage had too many."""

    def keep_lines(self, lines: Sequence[str], start: str) -> str:
        """Keep the lines of an answer for a while, and return the cursor that continues at `start`."""
        self._kept_count += 1
        name = f"r{self._kept_count}"
        self.kept_lines[name] = lines
        while len(self.kept_lines) > MAX_KEPT_ANSWERS:
            self.kept_lines.popitem(last=False)
        return f"{name}:{start}"

    def tab(self, tab_id: str = "") -> Tab:
        """Return the tab with this id; without an id, the one that was used last. Raises TAB_GONE."""
        tab = self.tabs.get(tab_id) if tab_id else self.current
        if tab is None or tab.is_closed:
            tab = None if tab_id else next(reversed(self.tabs.values()), None)
        if tab is None:
            raise ToolError(
                TAB_GONE, f"There is no tab {tab_id}." if tab_id else f"The stage {self.id} has no tab."
            )
        return tab

    async def open_tab(self) -> Tab:
        """Open an empty tab and wait until it can be used."""
        if len(self.tabs) >= MAX_TABS:
            raise ToolError(TOO_MANY_TABS, f"The stage {self.id} has {len(self.tabs)} tabs already.")
        with browser_failures():
            created = await self.browser.connection.send(
                cdp.TargetCreateTarget(url="about:blank", browser_context_id=self.context_id or None)
            )
        tab = await self.browser.wait_for_tab(created.target_id)
        self.current = tab
        return tab

    async def close_tab(self, tab: Tab) -> None:
        """Close a tab, even if its page is busy."""
        with browser_failures(), contextlib.suppress(CdpError, NoAnswerError):
            await self.browser.connection.send(
                cdp.TargetCloseTarget(target_id=tab.target_id), timeout=_CLOSE_SECONDS
            )
        self.forget(tab)

    def forget(self, tab: Tab) -> None:
        """Remove a tab that is closed."""
        tab.end()
        self.tabs.pop(tab.id, None)
        if self.current is tab:
            self.current = next(reversed(self.tabs.values()), None)

    def answer_dialog(self, tab: Tab, event: cdp.PageJavascriptDialogOpening) -> tuple[bool, str | None]:
        """Decide whether to accept a dialog, and what to type into it. The next answer reports the dialog."""
        dialog, text = self.dialogs.choose_answer(
            tab.id, event.type, event.message, is_leaving=tab.is_leaving
        )
        what = f"{dialog.kind} dialog {'accepted' if dialog.accepted else 'dismissed'} in {tab.id}"
        self.notices.add(what, dialog.message)
        return dialog.accepted, text

    async def close(self) -> None:
        """Close every tab and delete the cookies and storage, unless the stage is attached. The last stage closes its browser."""
        self.browser.stages.pop(self.context_id, None)
        if not self.is_attached and self.browser.stages:  # the last stage ends with its browser
            with contextlib.suppress(CdpError, ConnectionLostError, NoAnswerError):
                await self.browser.connection.send(
                    cdp.TargetDisposeBrowserContext(browser_context_id=self.context_id),
                    timeout=_CLOSE_SECONDS,
                )
        for tab in list(self.tabs.values()):
            self.forget(tab)
        if not self.browser.stages:
            await self.browser.close()


@dataclass(slots=True)
class IdCounters:
    """How many stages and tabs a caller has had, in all browsers: the next ones get higher numbers."""

    stages: int = 0
    tabs: int = 0


class Browser:
    """A browser that this server has started, or one that it is attached to."""

    def __init__(self, connection: Connection, process: BrowserProcess | None, counters: IdCounters) -> None:
        self.connection = connection
        self.process = process
        """None if the browser is attached."""
        self.counters = counters
        self.stages: dict[str, Stage] = {}
        self.on_close: Callable[[], None] = lambda: None
        self._closing: asyncio.Future[None] | None = None
        self._waiting: dict[str, asyncio.Future[Tab]] = {}
        self._tabs_by_target: dict[str, Tab] = {}
        self._connection_watch = asyncio.ensure_future(self._watch_connection())
        self._download_watch = asyncio.ensure_future(self._watch_downloads())
        connection.handle("", self._on_event)

    @classmethod
    async def attach(cls, connection: Connection, counters: IdCounters) -> Stage:
        """Return a stage with all tabs of a browser that is already running."""
        browser = cls(connection, None, counters)
        counters.stages += 1
        stage = browser.stages[_ATTACHED] = Stage(browser, f"s{counters.stages}", _ATTACHED)
        stage.is_attached = True
        try:
            connection.post(cdp.TargetSetDiscoverTargets(discover=True))
            # The answer arrives after the events about the tabs that are open.
            await connection.send(
                cdp.TargetSetAutoAttach(auto_attach=True, wait_for_debugger_on_start=False, flatten=True)
            )
            await asyncio.gather(*(tab.ready.wait() for tab in stage.tabs.values()))
        except BaseException:
            await browser.close()
            raise
        return stage

    def start(self) -> None:
        """Tell the browser to report every tab that is opened. Does not wait for its answers."""
        self.connection.post(cdp.TargetSetDiscoverTargets(discover=True))
        self.connection.post(
            cdp.TargetSetAutoAttach(auto_attach=True, wait_for_debugger_on_start=True, flatten=True)
        )

    def check(self) -> None:
        """Raise if the browser has ended."""
        if self.connection.closed.is_set():
            raise ToolError(BROWSER_GONE, "The browser has ended. Its stages and tabs are lost.")

    async def open_stage(self) -> Stage:
        """Create a stage without tabs."""
        assert self.process is not None
        if len(self.stages) >= MAX_STAGES:
            raise ToolError(TOO_MANY_TABS, f"There are {len(self.stages)} stages already.")
        with browser_failures():
            created = await self.connection.send(cdp.TargetCreateBrowserContext(dispose_on_detach=True))
        context = created.browser_context_id
        self.counters.stages += 1
        folder = f"downloads/s{self.counters.stages}"
        make_folder_in_browser(self.process.folder, folder)
        self.connection.post(
            cdp.BrowserSetDownloadBehavior(
                behavior="allowAndName",
                browser_context_id=context,
                download_path=str(self.process.folder / folder),
                events_enabled=True,
            )
        )
        stage = self.stages[context] = Stage(self, f"s{self.counters.stages}", context, folder)
        return stage

    async def wait_for_tab(self, target_id: str) -> Tab:
        """Wait until the tab of a target that was just created can be used, and return it."""
        tab = self._tabs_by_target.get(target_id)
        if tab is None:
            future = self._waiting.setdefault(target_id, asyncio.get_running_loop().create_future())
            try:
                async with asyncio.timeout(_OPEN_SECONDS):
                    tab = await future
            except TimeoutError:
                raise ToolError(TAB_GONE, "The new tab did not open.") from None
            finally:
                self._waiting.pop(target_id, None)
        await tab.ready.wait()
        return tab

    async def update_titles(self) -> None:
        """Get the titles of all tabs from the browser, because it does not report every change of a title."""
        with browser_failures():
            targets = await self.connection.send(cdp.TargetGetTargets())
        for info in targets.target_infos:
            if tab := self._tabs_by_target.get(info.target_id):
                tab.title = info.title[:MAX_TEXT]

    async def close(self) -> None:
        """End the browser. If Holdfast has not started it, only close the connection."""
        if self._closing is None:  # two calls may close the last stages at the same time
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._connection_watch.cancel()
        self._download_watch.cancel()
        self.on_close()
        if self.process is not None:
            await self.process.close()
        else:
            self.connection.close()

    async def _watch_connection(self) -> None:
        await self.connection.closed.wait()
        for stage in list(self.stages.values()):
            for tab in list(stage.tabs.values()):
                tab.end()

    def _on_event(self, event: msgspec.Struct) -> None:
        match event:
            case cdp.TargetAttachedToTarget():
                self._on_attached(event)
            case cdp.TargetDetachedFromTarget(session_id=session):
                for stage in self.stages.values():
                    for tab in [tab for tab in stage.tabs.values() if tab.session == session]:
                        stage.forget(tab)
                        self._tabs_by_target.pop(tab.target_id, None)
            case cdp.TargetTargetInfoChanged(target_info=info):
                if tab := self._tabs_by_target.get(info.target_id):
                    tab.title = info.title[:MAX_TEXT]
            case cdp.BrowserDownloadWillBegin():
                self._begin_download(event)
            case cdp.BrowserDownloadProgress():
                for stage in self.stages.values():
                    self._continue_download(stage, event)
            case _:
                pass

    def _on_attached(self, event: cdp.TargetAttachedToTarget) -> None:
        info, session = event.target_info, event.session_id
        stage = self.stages.get(_ATTACHED) or self.stages.get(info.browser_context_id or "")
        if stage is None or info.type not in (_ATTACHED_TAB_TYPES if stage.is_attached else _TAB_TYPES):
            if event.waiting_for_debugger:
                self.connection.post(cdp.RuntimeRunIfWaitingForDebugger(), session)
            return
        if len(stage.tabs) >= MAX_TABS:
            if stage.is_attached:  # the tab is the user's, so it stays open
                stage.notices.add(f"a tab is not shown: the stage has {MAX_TABS} tabs", info.url)
                return
            stage.closed_tabs += 1
            stage.notices.add(f"a new tab was closed: the stage has {MAX_TABS} tabs", info.url)
            # The page that opened the tab is blocked until the tab runs.
            self.connection.post(cdp.RuntimeRunIfWaitingForDebugger(), session)
            self.connection.post(cdp.TargetCloseTarget(target_id=info.target_id))
            return
        self.add_tab(stage, info, session)

    def add_tab(self, stage: Stage, info: cdp.TargetTargetInfo, session: str) -> Tab:
        """Add a tab, and follow its events in this DevTools session."""
        self.counters.tabs += 1
        tab = Tab(
            self.connection,
            info.target_id,
            session,
            self.counters.tabs,
            on_dialog=stage.answer_dialog,
            notify=stage.notices.add,
        )
        tab.title = info.title[:MAX_TEXT]
        stage.tabs[tab.id] = tab
        stage.current = stage.current or tab
        self._tabs_by_target[info.target_id] = tab
        if info.opener_id:
            stage.notices.add(f"new tab {tab.id} was opened by the page", info.url)
        tab.start(attached=stage.is_attached)
        waiting = self._waiting.get(info.target_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(tab)
        return tab

    def _stage_of(self, frame_id: str) -> Stage | None:
        for stage in self.stages.values():
            if any(frame_id in tab.frames for tab in stage.tabs.values()):
                return stage
        return None

    def _begin_download(self, event: cdp.BrowserDownloadWillBegin) -> None:
        stage = self._stage_of(event.frame_id)
        if stage is None and len(self.stages) == 1:
            stage = next(iter(self.stages.values()))
        if stage is None:
            return  # the frame of the download is gone: `update_unreported_downloads` finds the download later
        self._note_download(stage, *stage.downloads.begin(event))

    def _note_download(self, stage: Stage, number: int, download: Download) -> None:
        if download.state == "canceled":
            self._cancel(stage, download)
        what = f"was cancelled ({download.reason})" if download.reason else "began"
        stage.notices.add(f"download {number} {what}", download.suggested_name)
        for tab in stage.tabs.values():
            tab.wake()

    def _continue_download(self, stage: Stage, event: cdp.BrowserDownloadProgress) -> None:
        download = stage.downloads.find(event.guid)
        if download is None:
            return
        if stage.downloads.record_progress(download, event):
            self._cancel(stage, download)
        for tab in stage.tabs.values():
            tab.wake()

    async def update_unreported_downloads(self) -> None:
        """Add and update the downloads that the browser does not report, by their files: those whose tab or frame was gone when the server answered."""
        if self.process is None:
            return  # the downloads of an attached browser are the user's
        for stage in list(self.stages.values()):
            with contextlib.suppress(
                OSError, ToolError, HoldfastError, CdpError, ConnectionLostError, NoAnswerError
            ):
                await self._update_unreported_downloads(stage, self.process.folder)

    async def _update_unreported_downloads(self, stage: Stage, folder: Path) -> None:
        files = await _THREADS.run(list_downloads, folder, stage.download_folder)
        if stage.downloads.unknown(files):
            # Any command will do: events that are under way arrive before its answer.
            await self.connection.send(cdp.BrowserGetVersion())
        for guid in stage.downloads.unknown(files):
            self._note_download(stage, *stage.downloads.begin_unreported(guid))
        for download in stage.downloads.unreported():
            if stage.downloads.record_unreported_progress(download, files.get(download.guid)):
                self._cancel(stage, download)
        for guid in stage.downloads.refused(files):
            await _THREADS.run(remove_download, folder, f"{stage.download_folder}/{guid}")
        for tab in stage.tabs.values():
            tab.wake()

    async def _watch_downloads(self) -> None:
        while not self.connection.closed.is_set():
            await asyncio.sleep(_DOWNLOAD_CHECK_SECONDS)
            await self.update_unreported_downloads()

    def _cancel(self, stage: Stage, download: Download) -> None:
        self.connection.post(
            cdp.BrowserCancelDownload(guid=download.guid, browser_context_id=stage.context_id)
        )
