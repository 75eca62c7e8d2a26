"""One tab: its state, waiting for changes of the state, and calls of the page script."""

import asyncio
import json
import time
from collections import OrderedDict, deque
from collections.abc import Callable
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
from holdfast.builtin.stage.frames import Document, Frame, FrameTree, RefNumbers
from holdfast.builtin.stage.limits import SCRIPT_SECONDS
from holdfast.builtin.stage.page_log import PageLog
from holdfast.builtin.stage.snapshot_view import Snapshot
from holdfast.builtin.stage.tab_events import TabEvents
from holdfast.toolkit import ToolError

R = TypeVar("R")

_DIALOG_FLOOD = 4  # this many dialogs within `_FLOOD_SECONDS` are a flood
_FLOOD_SECONDS = 5.0


class Tab:
    """A tab of a stage. Calls that read or change the page take `lock`, so that only one runs at a time."""

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
        self.tree = FrameTree()
        self.log = PageLog()
        self.refs = RefNumbers()
        self.snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self.snapshot_count = 0
        self.is_closed = False
        self.is_crashed = False
        self.is_hung = False
        self.is_leaving = False
        """Whether a call is loading another page, so that `beforeunload` may not stop it."""
        self.has_dialog = False
        self.dialog_times: deque[float] = deque(maxlen=_DIALOG_FLOOD)
        self.navigations = 0
        """How many loads of another page have begun."""
        self.commits = 0
        """How often the tab has shown another page, or the page has changed its address."""
        self.loader_id = ""
        """The DevTools protocol's id of the load of the current page."""
        self.is_loading = False
        self.is_waiting = False
        """Whether the tab waits for the server of its next page. Until the server answers, the old page gets no commands."""
        self.asked_for_program_at: float | None = None
        """When the page asked to open another program. Nobody sees the browser's question, and the page gets no mouse events until the
        question is closed."""
        self.dragged: dict[str, Any] | None = None
        """The data of a drag that has begun."""
        self.is_attached = False
        """Whether the browser is the user's own."""
        self.ready = asyncio.Event()
        """Set once the tab can be used."""
        self.on_dialog = on_dialog
        self.notify = notify
        self._events = TabEvents(self)
        self._waiters: set[asyncio.Event] = set()

    def start(self, *, attached: bool = False) -> None:
        """Prepare the tab's page. The page runs once all commands have arrived."""
        self.is_attached = attached
        self._events.start()

    def end(self) -> None:
        self.is_closed = True
        self._events.end()
        self.wake()

    def wake(self) -> None:
        """Let every `until` check its condition again."""
        for waiter in self._waiters:
            waiter.set()

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition on this tab's state is true. Returns False if it is not true in time."""
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
        """Whether the page has opened at least `_DIALOG_FLOOD` dialogs in the last `_FLOOD_SECONDS`."""
        times = self.dialog_times
        return len(times) == _DIALOG_FLOOD and time.monotonic() - times[0] < _FLOOD_SECONDS

    @property
    def frames(self) -> dict[str, Frame]:
        return self.tree.frames

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
        """Return the document of a frame, or of the tab. Waits while the frame is loading."""
        wanted = frame_id or self.target_id

        def is_decided() -> bool:
            return self.find_document(wanted) is not None or self.is_over or wanted not in self.frames

        if not await self.until(is_decided, timeout):
            raise ToolError(PAGE_HUNG, f"The page in {self.id} does not answer.")
        self.check()
        document = self.find_document(wanted)
        if document is None:
            raise ToolError(STALE_REF, "The frame is gone.")
        return document

    @property
    def is_over(self) -> bool:
        """Whether the tab is closed, or its page has crashed."""
        return self.is_closed or self.is_crashed

    def find_document(self, frame_id: str) -> Document | None:
        return self.tree.document(frame_id)

    async def run(
        self, document: Document, function: str, timeout: float = SCRIPT_SECONDS, **options: Any
    ) -> Any:
        """Call a function of the page script in a document."""
        expression = f"stage.{function}({json.dumps(options)})"
        value = await self.evaluate(document.session, expression, document.unique_id, timeout)
        return value.value

    async def run_for_large_result(
        self, document: Document, function: str, timeout: float = SCRIPT_SECONDS, **options: Any
    ) -> Any:
        """Call a function of the page script whose result is large. The result is passed as JSON text, which is much faster."""
        expression = f"JSON.stringify(stage.{function}({json.dumps(options)}))"
        value = await self.evaluate(document.session, expression, document.unique_id, timeout)
        return msgspec.json.decode(value.value)

    async def evaluate(
        self, session: str, expression: str, unique_id: str, timeout: float
    ) -> cdp.RuntimeRemoteObject:
        """Evaluate an expression in the JavaScript context with this id; raises RuntimeError if it throws."""
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
        self.check()
        with browser_failures():
            try:
                result = await self.connection.send(command, session or self.session, timeout)
            except NoAnswerError:
                self.check()
                if self.is_waiting:
                    raise ToolError(PAGE_HUNG, f"{self.id} waits for the server of its next page.") from None
                self.is_hung = True
                if self.has_dialog or self.has_dialog_flood:
                    raise ToolError(
                        DIALOG_OPEN, f"The page in {self.id} opens one dialog after another."
                    ) from None
                raise
        self.is_hung = False
        return result

    def ref(self, number: int) -> str:
        """Return the ref with this number in this tab. No two tabs of a caller have a ref in common."""
        return f"{self.ref_prefix}{number}"

    @property
    def ref_prefix(self) -> str:
        """What a ref in this tab has before its number."""
        return "e" if self.number == 1 else f"t{self.number}e"

    @property
    def next_ref(self) -> int:
        return self.refs.next

    def claim(self, document: Document, next_ref: int) -> None:
        """Record that a document uses all ref numbers from the next one up to, but not including, `next_ref`."""
        self.refs.claim(document, next_ref)

    def find_ref(self, number: int) -> Document:
        """Return the document of an element. Raises NO_ELEMENT for a number that was never given, STALE_REF if the document was replaced."""
        self.check()
        document = self.refs.document(number)
        if document is None:
            raise ToolError(NO_ELEMENT, f"There is no element {self.ref(number)}.")
        # Not `document` itself: after `back`, the browser reports the old page as a new document with the same id.
        shown = self.tree.documents.get(document.unique_id)
        if shown is None:
            raise ToolError(STALE_REF, f"{self.ref(number)} was on a page that is no longer shown.")
        return shown

    async def element(self, number: int) -> tuple[Document, str]:
        """Return the document of an element, and the id with which commands of the DevTools protocol name the element."""
        document = self.find_ref(number)
        result = await self.send(
            cdp.RuntimeEvaluate(expression=f"stage.element({number})", unique_context_id=document.unique_id),
            document.session,
        )
        if result.result.object_id is None:
            raise ToolError(STALE_REF, f"{self.ref(number)} is no longer on the page.")
        return document, result.result.object_id

    async def frame_element(self, frame: Frame) -> tuple[Document, int] | None:
        """Return the document that contains a frame's element, and the element's ref number. None for the main frame, or a frame that is gone."""
        parent = self.find_document(frame.parent_id) if frame.parent_id else None
        if parent is None:
            return None
        if frame.owner is not None and frame.owner[0] == parent.unique_id:
            return parent, frame.owner[1]
        with browser_failures():
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
            except CdpError:  # the frame is gone
                return None
        number, next_ref = called.result.value
        self.claim(parent, next_ref)
        frame.owner = (parent.unique_id, number)
        return parent, number


def describe_tab(tab: Tab) -> str:
    """Describe a tab in one line, for the fenced part of an answer."""
    title = one_line(tab.title, 100)
    return f"{tab.id}: {f'{title} — ' if title else ''}{one_line(tab.url, 300)}"
