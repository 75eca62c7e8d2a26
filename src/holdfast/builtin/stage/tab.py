"""One tab: its frames and documents, what happened in it, and calls of the script that reads it (`page.js`)."""

import asyncio
import json
import time
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import CdpError, Connection, NoAnswerError
from holdfast.builtin.stage.codes import (
    DIALOG_OPEN,
    NO_ELEMENT,
    PAGE_CRASHED,
    PAGE_HUNG,
    STALE_REF,
    TAB_GONE,
    browser_failures,
)
from holdfast.builtin.stage.fence import one_line
from holdfast.builtin.stage.limits import (
    MAX_CONSOLE,
    MAX_REQUESTS,
    MAX_TEXT,
    SCRIPT_SECONDS,
    SETTLE_SECONDS,
)
from holdfast.builtin.stage.recent import Recent
from holdfast.builtin.stage.snapshot import Snapshot
from holdfast.builtin.stage.url_rules import DENIED_PATTERNS, may_show
from holdfast.toolkit import ToolError

R = TypeVar("R")

WORLD = "holdfast"
PAGE_SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
_DIALOG_FLOOD = 4  # dialogs within a few seconds
_FLOOD_SECONDS = 5.0
_WAITED_TYPES = frozenset({"Document", "XHR", "Fetch", "Script"})


@dataclass(slots=True)
class Document:
    """A document that is loaded in a frame. `session` is the DevTools session of its process."""

    unique_id: str
    context_id: int
    session: str
    frame_id: str
    checked: tuple[int, int] | None = None
    """How many elements it had when it was last searched for closed shadow roots, and how many could have one."""
    closed_roots: set[int] = field(default_factory=set[int])


@dataclass(slots=True)
class Frame:
    """A frame of the tab; `parent_id` is empty for the tab itself."""

    id: str
    parent_id: str
    url: str = ""
    session: str = ""
    owner: tuple[str, int] | None = None
    """The document around it, and the number of the frame's element there."""


@dataclass(slots=True)
class ConsoleLine:
    """Something that the page logged, or an error in its scripts."""

    level: str
    text: str
    where: str
    at: float


@dataclass(slots=True)
class Request:
    """A request of the page."""

    id: str
    session: str
    method: str
    url: str
    kind: str
    started: float
    headers: dict[str, Any]
    frame_id: str = ""
    status: int | None = None
    status_text: str = ""
    mime_type: str = ""
    response_headers: dict[str, Any] = field(default_factory=dict[str, Any])
    failure: str = ""
    size: int | None = None
    ended: float | None = None


class Tab:
    """A tab of a stage. Calls that read or change it take `lock`, so that they do not mix."""

    def __init__(
        self,
        connection: Connection,
        target_id: str,
        session: str,
        number: int,
        *,
        on_dialog: Callable[["Tab", cdp.PageJavascriptDialogOpening], tuple[bool, str | None]],
        notify: Callable[[str, str], None],
    ) -> None:
        self.connection = connection
        self.target_id = target_id
        self.session = session
        self.number = number
        self.id = f"t{number}"
        self.title = ""
        self.lock = asyncio.Lock()
        self.next_ref = 1
        self.frames: dict[str, Frame] = {}
        self.snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self.snapshot_count = 0
        self.console: Recent[ConsoleLine] = Recent(MAX_CONSOLE)
        self.requests: Recent[Request] = Recent(MAX_REQUESTS)
        self.in_flight: dict[str, Request] = {}
        self.is_closed = False
        self.is_crashed = False
        self.is_hung = False
        self.is_leaving = False
        """Whether a call is loading another page, so that `beforeunload` may not stop it."""
        self.has_dialog = False
        self.dialog_times: deque[float] = deque(maxlen=_DIALOG_FLOOD)
        self.navigations = 0
        self.is_loading = False
        self.lifecycle: dict[str, set[str]] = {}
        self.dragged: dict[str, Any] | None = None
        self.is_attached = False
        """Whether the browser belongs to somebody else."""
        self._on_dialog = on_dialog
        self._notify = notify
        self._sessions: set[str] = set()
        self._documents: dict[str, Document] = {}
        self._ranges: list[tuple[int, Document]] = []
        self._waiters: set[asyncio.Event] = set()
        self.ready = asyncio.Event()

    # Set-up.

    def start(self, *, attached: bool = False) -> None:
        """Prepare the tab's page. It runs once all commands have arrived."""
        self.is_attached = attached
        self.frames[self.target_id] = Frame(id=self.target_id, parent_id="", session=self.session)
        self._prepare(self.session)

    def _prepare(self, session: str) -> None:
        self._sessions.add(session)
        self.connection.handle(session, lambda event: self._on_event(session, event))
        commands: list[cdp.Command[Any]] = [
            cdp.PageEnable(),
            cdp.PageSetLifecycleEventsEnabled(enabled=True),
            cdp.PageAddScriptToEvaluateOnNewDocument(
                source=PAGE_SCRIPT, world_name=WORLD, run_immediately=True
            ),
            cdp.RuntimeEnable(),
            cdp.NetworkEnable(
                max_total_buffer_size=20_000_000, max_resource_buffer_size=5_000_000, max_post_data_size=0
            ),
            cdp.LogEnable(),
            cdp.InspectorEnable(),
            cdp.TargetSetAutoAttach(auto_attach=True, wait_for_debugger_on_start=True, flatten=True),
        ]
        if not self.is_attached:
            patterns = [cdp.FetchRequestPattern(url_pattern=pattern) for pattern in DENIED_PATTERNS]
            commands.append(cdp.FetchEnable(patterns=patterns))
            commands.append(cdp.EmulationSetFocusEmulationEnabled(enabled=True))
        for command in commands:
            self.connection.post(command, session)
        self.connection.post(cdp.RuntimeRunIfWaitingForDebugger(), session)
        if session == self.session:
            task = asyncio.ensure_future(self._read_frames(session))
            task.add_done_callback(lambda _: self.ready.set())
        else:
            asyncio.ensure_future(self._read_frames(session))  # noqa: RUF006 - it ends with its command

    async def _read_frames(self, session: str) -> None:
        try:
            result = await self.connection.send(cdp.PageGetFrameTree(), session)
        except Exception:
            return
        stack = [result.frame_tree]
        while stack:
            tree = stack.pop()
            known = self.frames.get(tree.frame.id)
            parent = tree.frame.parent_id or (known.parent_id if known else "")
            self._set_frame(tree.frame.id, parent, tree.frame.url, session)
            stack += tree.child_frames or []

    def _set_frame(self, frame_id: str, parent_id: str, url: str, session: str) -> None:
        frame = self.frames.get(frame_id)
        if frame is None:
            self.frames[frame_id] = Frame(id=frame_id, parent_id=parent_id, url=url, session=session)
        else:
            frame.url, frame.session = url, session
            frame.parent_id = frame.parent_id or parent_id

    def end(self) -> None:
        """The tab has gone."""
        self.is_closed = True
        for session in self._sessions:
            self.connection.forget(session)
        self._changed()

    # Events.

    def _on_event(self, session: str, event: msgspec.Struct) -> None:  # noqa: PLR0912, PLR0915
        match event:
            case cdp.RuntimeExecutionContextCreated(context=context):
                if context.name == WORLD and context.aux_data is not None:
                    frame_id = context.aux_data.get("frameId")
                    if isinstance(frame_id, str):
                        self._documents[context.unique_id] = Document(
                            context.unique_id, context.id, session, frame_id
                        )
            case cdp.RuntimeExecutionContextDestroyed(execution_context_id=number):
                self._forget_documents(session, number)
            case cdp.RuntimeExecutionContextsCleared():
                self._forget_documents(session, None)
            case cdp.PageFrameAttached(frame_id=frame_id, parent_frame_id=parent):
                self._set_frame(frame_id, parent, "", session)
            case cdp.PageFrameDetached(frame_id=frame_id, reason=reason):
                if reason != "swap":
                    self._remove_frame(frame_id)
            case cdp.PageFrameNavigated(frame=frame):
                known = self.frames.get(frame.id)
                parent = frame.parent_id or (known.parent_id if known else "")
                self._set_frame(frame.id, parent, frame.url, session)
                self.frames[frame.id].owner = self.frames[frame.id].owner if parent else None
                if not parent:
                    self.is_crashed = self.is_hung = False
                self._check_address(frame.id, frame.url, parent)
            case cdp.PageNavigatedWithinDocument(frame_id=frame_id, url=url):
                if frame_id in self.frames:
                    self.frames[frame_id].url = url
            case cdp.PageFrameStartedNavigating(frame_id=frame_id):
                if frame_id == self.target_id:
                    self.navigations += 1
                    self.is_loading = True
            case cdp.PageFrameStartedLoading(frame_id=frame_id):
                self.is_loading = self.is_loading or frame_id == self.target_id
            case cdp.PageFrameStoppedLoading(frame_id=frame_id):
                self.is_loading = self.is_loading and frame_id != self.target_id
            case cdp.PageLifecycleEvent(frame_id=frame_id, loader_id=loader, name=name):
                if frame_id == self.target_id:
                    if loader not in self.lifecycle:
                        self.lifecycle = {loader: set()}
                    self.lifecycle[loader].add(name)
            case cdp.PageJavascriptDialogOpening():
                self.has_dialog = True
                self.dialog_times.append(time.monotonic())
                accept, text = self._on_dialog(self, event)
                self.connection.post(cdp.PageHandleJavaScriptDialog(accept=accept, prompt_text=text), session)
            case cdp.PageJavascriptDialogClosed():
                self.has_dialog = False
            case cdp.InspectorTargetCrashed():
                self._crash(session)
            case cdp.TargetAttachedToTarget():
                self._attach(event)
            case cdp.TargetDetachedFromTarget(session_id=gone):
                self._sessions.discard(gone)
                self.connection.forget(gone)
                self._forget_documents(gone, None)
            case cdp.FetchRequestPaused(request_id=request, request=described):
                self.connection.post(
                    cdp.FetchFailRequest(request_id=request, error_reason="BlockedByClient"), session
                )
                self._notify("denied address", described.url)
            case cdp.InputDragIntercepted(data=data):
                self.dragged = data
            case _:
                self._on_log_event(session, event)
        self._changed()

    def _on_log_event(self, session: str, event: msgspec.Struct) -> None:
        match event:
            case cdp.RuntimeConsoleAPICalled(type=level, args=args, timestamp=at, stack_trace=stack):
                text = " ".join(_show(value) for value in args[:20])
                frames = stack.call_frames if stack else []
                where = f"{frames[0].url}:{frames[0].line_number + 1}" if frames else ""
                self._log(level, text, where, at)
            case cdp.RuntimeExceptionThrown(timestamp=at, exception_details=details):
                thrown = details.exception
                text = (thrown.description if thrown else None) or details.text
                self._log("error", text, f"{details.url or ''}:{details.line_number + 1}", at)
            case cdp.LogEntryAdded(entry=entry):
                self._log(entry.level, entry.text, entry.url or "", entry.timestamp)
            case cdp.NetworkRequestWillBeSent():
                self._on_request(session, event)
            case cdp.NetworkResponseReceived(request_id=request, response=response):
                if found := self.in_flight.get(request):
                    found.status, found.status_text = response.status, response.status_text
                    found.mime_type, found.response_headers = response.mime_type, response.headers
            case cdp.NetworkLoadingFinished(request_id=request, encoded_data_length=size):
                if found := self.in_flight.pop(request, None):
                    found.size, found.ended = int(size), time.monotonic()
            case cdp.NetworkLoadingFailed(request_id=request, error_text=why, blocked_reason=blocked):
                if found := self.in_flight.pop(request, None):
                    found.failure, found.ended = blocked or why, time.monotonic()
            case cdp.NetworkWebSocketCreated(request_id=request, url=url):
                self.requests.add(
                    Request(request, session, "GET", url[:MAX_TEXT], "WebSocket", time.monotonic(), {})
                )
            case _:
                pass

    def _on_request(self, session: str, event: cdp.NetworkRequestWillBeSent) -> None:
        if event.request_id in self.in_flight and event.redirect_response is not None:
            redirected = self.in_flight.pop(event.request_id)
            redirected.status, redirected.ended = event.redirect_response.status, time.monotonic()
            redirected.response_headers = event.redirect_response.headers
        request = Request(
            event.request_id,
            session,
            event.request.method,
            event.request.url[:MAX_TEXT],
            event.type or "",
            time.monotonic(),
            event.request.headers,
            event.frame_id or "",
        )
        self.requests.add(request)
        if len(self.in_flight) >= MAX_REQUESTS:  # a flood
            self.in_flight.pop(next(iter(self.in_flight)))
        self.in_flight[event.request_id] = request

    def _log(self, level: str, text: str, where: str, at: float) -> None:
        self.console.add(ConsoleLine(level, text[:MAX_TEXT], where[:MAX_TEXT], at))

    def _attach(self, event: cdp.TargetAttachedToTarget) -> None:
        info, session = event.target_info, event.session_id
        if info.type == "iframe":
            parent = (
                self.frames[info.target_id].parent_id if info.target_id in self.frames else self.target_id
            )
            self._set_frame(info.target_id, parent, info.url, session)
            self._prepare(session)
        elif event.waiting_for_debugger:
            self.connection.post(cdp.RuntimeRunIfWaitingForDebugger(), session)

    def _check_address(self, frame_id: str, url: str, parent_id: str) -> None:
        parent = self.frames.get(parent_id) if parent_id else None
        if self.is_attached or may_show(url, parent.url if parent else None):
            return
        self._notify("denied address", url)
        session = self.frames[frame_id].session
        self.connection.post(cdp.PageNavigate(url="about:blank", frame_id=frame_id), session)

    def _remove_frame(self, frame_id: str) -> None:
        gone = [frame_id]
        while gone:
            removed = gone.pop()
            self.frames.pop(removed, None)
            gone += [frame.id for frame in self.frames.values() if frame.parent_id == removed]

    def _forget_documents(self, session: str, number: int | None) -> None:
        for unique_id, document in list(self._documents.items()):
            if document.session == session and number in (None, document.context_id):
                del self._documents[unique_id]

    def _crash(self, session: str) -> None:
        self._forget_documents(session, None)
        if session == self.session:
            self.is_crashed = True
            self._notify("page crashed", self.url)
        self.connection.fail(session, NoAnswerError("the page crashed"))

    def wake(self) -> None:
        """Let those who wait for a change look again."""
        self._changed()

    def _changed(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition on this tab's state is true; False if it is not in time."""
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    waiter.clear()
                    await waiter.wait()
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    @property
    def has_dialog_flood(self) -> bool:
        """Whether the page has opened many dialogs in the last seconds."""
        times = self.dialog_times
        return len(times) == _DIALOG_FLOOD and time.monotonic() - times[0] < _FLOOD_SECONDS

    # What it shows.

    @property
    def url(self) -> str:
        frame = self.frames.get(self.target_id)
        return frame.url if frame else ""

    def check(self) -> None:
        """Raise if the tab is closed or its page has crashed."""
        if self.is_closed:
            raise ToolError(TAB_GONE, f"The tab {self.id} is closed.")
        if self.is_crashed:
            raise ToolError(PAGE_CRASHED, f"The page in {self.id} has crashed.")

    async def document(self, frame_id: str = "", timeout: float = SCRIPT_SECONDS) -> Document:
        """The document of a frame, or of the tab. Wait for it while the frame is loading."""
        wanted = frame_id or self.target_id
        if not await self.until(lambda: self.find_document(wanted) is not None or self.is_over, timeout):
            raise ToolError(PAGE_HUNG, f"The page in {self.id} does not answer.")
        self.check()
        document = self.find_document(wanted)
        if document is None:
            raise ToolError(STALE_REF, "The frame has gone.")
        return document

    @property
    def is_over(self) -> bool:
        return self.is_closed or self.is_crashed

    def find_document(self, frame_id: str) -> Document | None:
        """The newest document of a frame, if it is there already."""
        found = [document for document in self._documents.values() if document.frame_id == frame_id]
        return found[-1] if found else None

    async def run(
        self, document: Document, function: str, timeout: float = SCRIPT_SECONDS, **options: Any
    ) -> Any:
        """Call a function of `page.js` in a document."""
        expression = f"stage.{function}({json.dumps(options)})"
        value = await self.evaluate(document.session, expression, document.unique_id, timeout)
        return value.value

    async def evaluate(
        self, session: str, expression: str, unique_id: str, timeout: float
    ) -> cdp.RuntimeRemoteObject:
        """Evaluate an expression of ours in a context."""
        result = await self.send(
            cdp.RuntimeEvaluate(
                expression=expression, unique_context_id=unique_id, return_by_value=True, await_promise=True
            ),
            session,
            timeout,
        )
        if result.exception_details is not None:
            details = result.exception_details
            raise RuntimeError(details.exception.description if details.exception else details.text)
        return result.result

    async def send(self, command: cdp.Command[R], session: str = "", timeout: float = SCRIPT_SECONDS) -> R:
        """Send a command to the page."""
        self.check()
        with browser_failures():
            try:
                result = await self.connection.send(command, session or self.session, timeout)
            except NoAnswerError:
                self.check()
                self.is_hung = True
                if self.has_dialog:
                    raise ToolError(DIALOG_OPEN, f"A dialog is open in {self.id}.") from None
                raise
        self.is_hung = False
        return result

    # Refs.

    def ref(self, number: int) -> str:
        """The ref of an element's number in this tab. No two tabs of a session have a ref in common."""
        return f"e{number}" if self.number == 1 else f"t{self.number}e{number}"

    def claim(self, document: Document, next_ref: int) -> None:
        """Remember that the numbers up to `next_ref` belong to a document."""
        if next_ref > self.next_ref:
            if not self._ranges or self._ranges[-1][1] is not document:
                self._ranges.append((self.next_ref, document))
            self.next_ref = next_ref

    def find_ref(self, number: int) -> Document:
        """The document of an element; raises NO_ELEMENT for a number that was never given, STALE_REF if it was replaced."""
        self.check()
        if not 0 < number < self.next_ref:
            raise ToolError(NO_ELEMENT, f"There is no element {self.ref(number)}.")
        index = bisect_right(self._ranges, number, key=lambda entry: entry[0]) - 1
        document = self._ranges[index][1]
        if document.unique_id not in self._documents:
            raise ToolError(STALE_REF, f"{self.ref(number)} was on a page that is no longer shown.")
        return document

    async def element(self, number: int) -> tuple[Document, str]:
        """A handle on an element, for commands that need one."""
        document = self.find_ref(number)
        result = await self.send(
            cdp.RuntimeEvaluate(expression=f"stage.element({number})", unique_context_id=document.unique_id),
            document.session,
        )
        if result.result.object_id is None:
            raise ToolError(STALE_REF, f"{self.ref(number)} is no longer on the page.")
        return document, result.result.object_id

    async def frame_element(self, frame: Frame) -> tuple[Document, int] | None:
        """The document around a frame, and the number of the frame's element in it; None for the tab itself."""
        parent = self.find_document(frame.parent_id) if frame.parent_id else None
        if parent is None:
            return None
        if frame.owner is not None and frame.owner[0] == parent.unique_id:
            return parent, frame.owner[1]
        try:
            owner = await self.connection.send(cdp.DomGetFrameOwner(frame_id=frame.id), parent.session)
            resolved = await self.connection.send(
                cdp.DomResolveNode(
                    backend_node_id=owner.backend_node_id, execution_context_id=parent.context_id
                ),
                parent.session,
            )
            called = await self.connection.send(
                cdp.RuntimeCallFunctionOn(
                    function_declaration="function (from) { return stage.refFor(this, from) }",
                    object_id=resolved.object.object_id,
                    arguments=[cdp.RuntimeCallArgument(value=self.next_ref)],
                    return_by_value=True,
                ),
                parent.session,
            )
        except CdpError:  # it has gone
            return None
        number, next_ref = called.result.value
        self.claim(parent, next_ref)
        frame.owner = (parent.unique_id, number)
        return parent, number

    # Waiting for what an action causes.

    def mark(self) -> tuple[int, frozenset[str]]:
        """The state before an action, for `settle`."""
        return self.navigations, frozenset(self.in_flight)

    async def settle(self, before: tuple[int, frozenset[str]], load_seconds: float) -> None:
        """Wait until the consequences of an action are visible: a page that it loads, requests, changes."""
        await self._quiet()
        if self.navigations > before[0]:
            await self.until(lambda: not self.is_loading or self.is_over, load_seconds)
            await self._quiet()
            return

        def is_idle() -> bool:
            new = (request for number, request in self.in_flight.items() if number not in before[1])
            return not any(request.kind in _WAITED_TYPES for request in new) or self.is_over

        if not is_idle():
            await self.until(is_idle, SETTLE_SECONDS)
            await self._quiet()

    async def _quiet(self) -> None:
        document = self.find_document(self.target_id)
        if document is None or self.is_over:
            return
        try:
            await self.run(document, "settle", timeout=SETTLE_SECONDS, quiet=25, ms=400)
        except ToolError as error:
            if error.code is PAGE_HUNG:
                return
            if error.code is not STALE_REF:
                raise


def _show(value: cdp.RuntimeRemoteObject) -> str:
    if value.type == "string":
        return str(value.value)[:MAX_TEXT]
    if value.description is not None:
        return value.description[:MAX_TEXT]
    return json.dumps(value.value)[:MAX_TEXT] if value.value is not None else value.type


def describe_tab(tab: Tab) -> str:
    """A tab in one line, for the fenced part of an answer."""
    title = one_line(tab.title, 100)
    return f"{tab.id}: {f'{title} — ' if title else ''}{one_line(tab.url, 300)}"
