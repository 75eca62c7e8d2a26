"""The frames of a tab, and the documents that are loaded in them."""

from bisect import bisect_right
from collections.abc import Container
from dataclasses import dataclass, field

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.url_rules import without_credentials


@dataclass(slots=True)
class Document:
    """A document that is loaded in a frame. `session` is the DevTools session of its process."""

    unique_id: str
    context_id: int
    session: str
    frame_id: str
    closed_roots: set[int] = field(default_factory=set[int])
    """The closed shadow roots that the page script knows."""


@dataclass(slots=True)
class Frame:
    """A frame of the tab; `parent_id` is empty for the main frame."""

    id: str
    parent_id: str
    url: str = ""
    session: str = ""
    owner: tuple[str, int] | None = None
    """The unique id of the document that contains the frame's element, and the ref number of this element."""


class FrameTree:
    """All frames of a tab by id, and their documents."""

    def __init__(self) -> None:
        self.frames: dict[str, Frame] = {}
        self.documents: dict[str, Document] = {}

    def set(self, frame_id: str, parent_id: str, url: str, session: str) -> Frame:
        """Add or change a frame. A frame keeps its parent if the event does not name one."""
        # ":" is the address of a tab that has no page yet.
        url = "" if url == ":" else without_credentials(url)
        frame = self.frames.get(frame_id)
        if frame is None:
            frame = self.frames[frame_id] = Frame(id=frame_id, parent_id=parent_id, url=url, session=session)
        else:
            frame.url, frame.session = url, session
            frame.parent_id = frame.parent_id or parent_id
        return frame

    def set_tree(self, tree: cdp.PageFrameTree, session: str) -> None:
        """Add or change a frame and all frames in it."""
        stack = [tree]
        while stack:
            tree = stack.pop()
            self.set(tree.frame.id, tree.frame.parent_id or "", tree.frame.url, session)
            stack += tree.child_frames or []

    def remove(self, frame_id: str) -> None:
        """Remove a frame and all frames in it."""
        gone = [frame_id]
        while gone:
            removed = gone.pop()
            self.frames.pop(removed, None)
            gone += [frame.id for frame in self.frames.values() if frame.parent_id == removed]

    def children(self, frame_id: str) -> list[Frame]:
        """The frames directly inside of a frame."""
        return [frame for frame in self.frames.values() if frame.parent_id == frame_id]

    def is_inside(self, frame_id: str, outer: Container[str]) -> bool:
        """Return whether a frame is one of the frames in `outer`, or inside one of them."""
        frame = self.frames.get(frame_id)
        while frame is not None:
            if frame.id in outer:
                return True
            frame = self.frames.get(frame.parent_id)
        return False

    def document(self, frame_id: str) -> Document | None:
        """Return the newest document of a frame; None while it has none."""
        documents = [document for document in self.documents.values() if document.frame_id == frame_id]
        return documents[-1] if documents else None

    def forget_documents(self, session: str, context_id: int | None = None) -> None:
        """Remove the documents of a DevTools session, or only the one with this context."""
        for unique_id, document in list(self.documents.items()):
            if document.session == session and context_id in (None, document.context_id):
                del self.documents[unique_id]


class RefNumbers:
    """Which document each number in a ref belongs to. Numbers only rise, and none is given twice."""

    def __init__(self) -> None:
        self.next = 1
        self._ranges: list[tuple[int, Document]] = []

    def claim(self, document: Document, next_ref: int) -> None:
        """Record that a document uses all numbers from `next` up to, but not including, `next_ref`."""
        if next_ref > self.next:
            if not self._ranges or self._ranges[-1][1] is not document:
                self._ranges.append((self.next, document))
            self.next = next_ref

    def document(self, number: int) -> Document | None:
        """Return the document that uses a number; None if the number was never given."""
        if not 0 < number < self.next:
            return None
        return self._ranges[bisect_right(self._ranges, number, key=lambda entry: entry[0]) - 1][1]
