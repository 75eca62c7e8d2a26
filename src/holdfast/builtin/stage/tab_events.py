"""Handles the events of a tab: prepares each process of its page, and updates the tab's state."""

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import NoAnswerError
from holdfast.builtin.stage.frames import Document
from holdfast.builtin.stage.page_script import PAGE_SCRIPT, WORLD
from holdfast.builtin.stage.url_rules import (
    DENIED_PATTERNS,
    UNSAFE_REDIRECT,
    asks_first,
    is_for_program,
    may_show,
)

if TYPE_CHECKING:
    from holdfast.builtin.stage.tab import Tab

# How many bytes of response bodies the browser keeps for the tool `requests`: of all together, and of one.
_MAX_BODIES = 20_000_000
_MAX_BODY = 5_000_000
_REFUSED = re.compile(r"Not allowed to (?:load local resource|navigate top frame to data URL): ")


class TabEvents:
    """Handles the events of one tab. A page with frames of several sites has several processes, each with a DevTools session."""

    def __init__(self, tab: "Tab") -> None:
        self._tab = tab
        self._sessions: set[str] = set()

    def start(self) -> None:
        tab = self._tab
        tab.tree.set(tab.target_id, "", "", tab.session)
        self._prepare(tab.session)
        reading = asyncio.ensure_future(self._read_frames(tab.session))
        reading.add_done_callback(lambda _: tab.ready.set())

    def end(self) -> None:
        for session in self._sessions:
            self._tab.connection.forget(session)

    def _prepare(self, session: str) -> None:
        connection = self._tab.connection
        self._sessions.add(session)
        connection.handle(session, lambda event: self._on_event(session, event))
        commands: list[cdp.Command[Any]] = [
            cdp.PageEnable(),
            cdp.PageAddScriptToEvaluateOnNewDocument(
                source=PAGE_SCRIPT, world_name=WORLD, run_immediately=True
            ),
            cdp.RuntimeEnable(),
            cdp.NetworkEnable(
                max_total_buffer_size=_MAX_BODIES, max_resource_buffer_size=_MAX_BODY, max_post_data_size=0
            ),
            cdp.LogEnable(),
            cdp.InspectorEnable(),
            cdp.TargetSetAutoAttach(auto_attach=True, wait_for_debugger_on_start=True, flatten=True),
        ]
        if not self._tab.is_attached:
            patterns = [cdp.FetchRequestPattern(url_pattern=pattern) for pattern in DENIED_PATTERNS]
            commands.append(cdp.FetchEnable(patterns=patterns))
            commands.append(cdp.EmulationSetFocusEmulationEnabled(enabled=True))
        for command in commands:
            connection.post(command, session)
        connection.post(cdp.RuntimeRunIfWaitingForDebugger(), session)

    async def _read_frames(self, session: str) -> None:
        try:
            result = await self._tab.connection.send(cdp.PageGetFrameTree(), session)
        except Exception:
            return  # the page is gone; events report that
        self._tab.tree.set_tree(result.frame_tree, session)

    def _on_event(self, session: str, event: msgspec.Struct) -> None:
        if not self._on_document(session, event) and not self._on_load(session, event):
            self._on_other(session, event)
        self._tab.wake()

    def _on_document(self, session: str, event: msgspec.Struct) -> bool:
        tree = self._tab.tree
        match event:
            case cdp.RuntimeExecutionContextCreated(context=context):
                if context.name == WORLD and context.aux_data is not None:
                    frame_id = context.aux_data.get("frameId")
                    if isinstance(frame_id, str):
                        tree.documents[context.unique_id] = Document(
                            context.unique_id, context.id, session, frame_id
                        )
            case cdp.RuntimeExecutionContextDestroyed(execution_context_id=number):
                tree.forget_documents(session, number)
            case cdp.RuntimeExecutionContextsCleared():
                tree.forget_documents(session)
            case cdp.PageFrameAttached(frame_id=frame_id, parent_frame_id=parent):
                tree.set(frame_id, parent, "", session)
            case cdp.PageFrameDetached(frame_id=frame_id, reason=reason):
                if reason != "swap":
                    tree.remove(frame_id)
            case _:
                return False
        return True

    def _on_load(self, session: str, event: msgspec.Struct) -> bool:
        tab = self._tab
        match event:
            case cdp.PageFrameNavigated(frame=described):
                self._record_page(session, described)
            case cdp.PageNavigatedWithinDocument(frame_id=frame_id, url=url):
                if frame_id in tab.frames:
                    tab.frames[frame_id].url = url
                if frame_id == tab.target_id:
                    tab.commits += 1
                    tab.is_waiting = False
            case cdp.PageFrameStartedNavigating(frame_id=frame_id, url=url):
                if is_for_program(url):
                    if asks_first(url):
                        tab.asked_for_program_at = time.monotonic()
                    self._notify_denied(url)
                if frame_id == tab.target_id:
                    tab.navigations += 1
                    tab.is_loading = tab.is_waiting = True
            case cdp.PageFrameStartedLoading(frame_id=frame_id):
                tab.is_loading = tab.is_loading or frame_id == tab.target_id
            case cdp.PageFrameStoppedLoading(frame_id=frame_id):
                if frame_id == tab.target_id:
                    tab.is_loading = tab.is_waiting = False
            case _:
                return False
        return True

    def _record_page(self, session: str, described: cdp.PageFrame) -> None:
        """Record that a frame shows another page. If the page's address is denied, load an empty page instead."""
        tab = self._tab
        url = described.url + (described.url_fragment or "")
        frame = tab.tree.set(described.id, described.parent_id or "", url, session)
        if not frame.parent_id:
            frame.owner = None
            tab.commits += 1
            tab.loader_id = described.loader_id
            tab.is_crashed = tab.is_hung = tab.is_waiting = False
        self._replace_denied_page(frame.id, frame.url, frame.parent_id)
        if (described.url, described.url_fragment) == ("about:blank", "#blocked"):
            self._notify_denied("about:blank#blocked")
        elif not may_show(described.unreachable_url or "", tab.url):
            self._notify_denied(described.unreachable_url or "")

    def _on_other(self, session: str, event: msgspec.Struct) -> None:
        tab = self._tab
        match event:
            case cdp.PageJavascriptDialogOpening():
                tab.has_dialog = True
                tab.dialog_times.append(time.monotonic())
                accept, text = tab.on_dialog(tab, event)
                tab.connection.post(cdp.PageHandleJavaScriptDialog(accept=accept, prompt_text=text), session)
            case cdp.PageJavascriptDialogClosed():
                tab.has_dialog = False
            case cdp.InspectorTargetCrashed():
                self._crash(session)
            case cdp.TargetAttachedToTarget():
                self._attach(event)
            case cdp.TargetDetachedFromTarget(session_id=gone):
                self._sessions.discard(gone)
                tab.connection.forget(gone)
                tab.tree.forget_documents(gone)
            case cdp.FetchRequestPaused(request_id=request, request=described):
                tab.connection.post(
                    cdp.FetchFailRequest(request_id=request, error_reason="BlockedByClient"), session
                )
                self._notify_denied(described.url)
            case cdp.InputDragIntercepted(data=data):
                tab.dragged = data
            case _:
                self._notify_if_denied(event)
                tab.log.on_event(session, event)

    def _notify_if_denied(self, event: msgspec.Struct) -> None:
        """Notify the caller if the event says that the browser itself refuses to load an address."""
        match event:
            case cdp.LogEntryAdded(entry=entry) if entry.source == "security":
                refused = _REFUSED.match(entry.text)
                if refused is not None:
                    self._notify_denied(entry.text[refused.end() :])
            case cdp.NetworkLoadingFailed(request_id=request_id, error_text=why) if why == UNSAFE_REDIRECT:
                request = self._tab.log.in_flight.get(request_id)
                self._notify_denied(f"redirect of {request.url}" if request else "redirect")
            case _:
                pass

    def _notify_denied(self, url: str) -> None:
        if not self._tab.is_attached:
            self._tab.notify("URL_DENIED for the page", url)

    def _attach(self, event: cdp.TargetAttachedToTarget) -> None:
        info, session = event.target_info, event.session_id
        if info.type == "iframe":
            self._tab.tree.set(info.target_id, "", info.url, session)
            frame = self._tab.frames[info.target_id]
            frame.parent_id = frame.parent_id or self._tab.target_id
            self._prepare(session)
            asyncio.ensure_future(self._read_frames(session))  # noqa: RUF006 - the connection holds its future until it ends
        elif event.waiting_for_debugger:
            self._tab.connection.post(cdp.RuntimeRunIfWaitingForDebugger(), session)

    def _replace_denied_page(self, frame_id: str, url: str, parent_id: str) -> None:
        tab = self._tab
        parent = tab.frames.get(parent_id) if parent_id else None
        if tab.is_attached or may_show(url, parent.url if parent else None):
            return
        self._notify_denied(url)
        session = tab.frames[frame_id].session
        tab.connection.post(cdp.PageNavigate(url="about:blank", frame_id=frame_id), session)

    def _crash(self, session: str) -> None:
        tab = self._tab
        tab.tree.forget_documents(session)
        if session == tab.session:
            tab.is_crashed = True
            tab.notify("page crashed", tab.url)
        tab.connection.fail(session, NoAnswerError("the page crashed"))
