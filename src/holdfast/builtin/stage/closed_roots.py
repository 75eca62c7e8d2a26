"""Finds closed shadow roots, which no script can see, and tells the page script about them.

The browser's search counts the nodes in all shadow roots; the page script counts the nodes in the roots that it knows. If the
numbers differ, the page script does not know a root. Only then is the browser asked to describe all nodes, which takes longer
than reading the page.
"""

import asyncio

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import (
    COMMAND_SECONDS,
    CdpError,
    ConnectionLostError,
    NoAnswerError,
)
from holdfast.builtin.stage.frames import Document
from holdfast.builtin.stage.tab import Tab

_MAX_CLOSED_ROOTS = 300  # how many are added in one search
# These errors mean that the page changed during the search. The next answer searches again.
_PAGE_CHANGED_ERRORS = (CdpError, NoAnswerError, ConnectionLostError)


class ClosedRootSearch:
    """The search for one answer of a tool. The documents of a process are searched together, once."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        self._searched: set[str] = set()

    async def add_if_missing(self, document: Document) -> bool:
        """Like `add_missing`, but ask the browser to describe the nodes only if a root is missing."""
        return await self.is_root_missing(document) and await self.add_missing(document)

    async def is_root_missing(self, document: Document, timeout: float = COMMAND_SECONDS) -> bool:
        """Return whether the page script lacks a closed root of this document or of the others in its process. Only the first call for a process compares; later ones return False."""
        if document.session in self._searched:
            return False
        self._searched.add(document.session)
        try:
            nodes, known = await asyncio.gather(
                self._count_nodes(document.session, timeout),
                self._count_known(self._documents(document), timeout),
            )
        except _PAGE_CHANGED_ERRORS:
            return False
        return nodes != known

    async def add_missing(self, document: Document) -> bool:
        """Tell the page script about closed roots that it does not know. Return whether any of them is in this document."""
        try:
            added = [other for other in self._documents(document) if await self._add_roots(other)]
        except _PAGE_CHANGED_ERRORS:
            return False
        return document in added

    def _documents(self, document: Document) -> list[Document]:
        """Return all documents in the process of this one."""
        return [other for other in self._tab.tree.documents.values() if other.session == document.session]

    async def _count_nodes(self, session: str, timeout: float) -> int:
        """Return how many nodes the documents of a process have, including those in all shadow roots.

        `countNodes` of the page script counts the same kinds of nodes.
        """
        connection = self._tab.connection
        connection.post(cdp.DomEnable(), session)
        connection.post(cdp.DomGetDocument(depth=0), session)
        searching = asyncio.ensure_future(connection.send(cdp.DomPerformSearch(query=""), session, timeout))
        await asyncio.sleep(0)  # lets the task send the search first
        connection.post(cdp.DomDisable(), session)  # frees the nodes that the search found
        return (await searching).result_count

    async def _count_known(self, documents: list[Document], timeout: float) -> int:
        return sum(await asyncio.gather(*(self._count_known_in(document, timeout) for document in documents)))

    async def _count_known_in(self, document: Document, timeout: float) -> int:
        command = cdp.RuntimeEvaluate(
            expression="stage.countNodes()", unique_context_id=document.unique_id, return_by_value=True
        )
        counted = await self._tab.connection.send(command, document.session, timeout)
        return counted.result.value

    async def _add_roots(self, document: Document) -> bool:
        """Tell the page script about the closed roots of a document. Return whether there are new ones."""
        connection, session = self._tab.connection, document.session
        page = await connection.send(
            cdp.RuntimeEvaluate(expression="document", unique_context_id=document.unique_id), session
        )
        described = await connection.send(
            cdp.DomDescribeNode(object_id=page.result.object_id, depth=-1, pierce=True), session
        )
        roots = [root for root in _closed_roots(described.node) if root not in document.closed_roots]
        for root in roots[:_MAX_CLOSED_ROOTS]:
            resolved = await connection.send(
                cdp.DomResolveNode(backend_node_id=root, execution_context_id=document.context_id), session
            )
            await connection.send(
                cdp.RuntimeCallFunctionOn(
                    function_declaration="function () { stage.addClosedRoot(this) }",
                    object_id=resolved.object.object_id,
                ),
                session,
            )
            document.closed_roots.add(root)
        return bool(roots)


def _closed_roots(node: cdp.DomNode) -> list[int]:
    roots: list[int] = []
    stack = [node]
    while stack:
        node = stack.pop()
        for root in node.shadow_roots or ():
            if root.shadow_root_type == "closed":
                roots.append(root.backend_node_id)
            if root.shadow_root_type != "user-agent":
                stack.append(root)
        stack += node.children or ()
    return roots
