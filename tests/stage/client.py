"""Call the stage tools in this process, as one caller."""

import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.builtin.stage.files import SessionFiles
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.builtin.stage.server import stage_toolbox
from holdfast.toolkit import Call, Toolbox
from holdfast.wire.messages import Raw


@dataclass(frozen=True)
class Failure:
    """A call that failed."""

    code: str
    message: str
    hint: str
    details: dict[str, Any]


class Client:
    """One caller of the tools."""

    def __init__(self, box: Toolbox, name: str = "ann", *, allow_eval: bool = True) -> None:
        self.box = box
        self.name = name
        self._dispatcher = box.dispatcher(allow_eval=allow_eval)

    async def result(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a call, as an MCP client gets it."""
        raw = Raw(msgspec.json.encode(arguments))
        dispatched = await self._dispatcher.dispatch(Call(tool=tool, connection=self.name), raw)
        return msgspec.json.decode(dispatched.result)

    async def envelope(self, tool: str, **arguments: Any) -> dict[str, Any] | Failure:
        result = await self.result(tool, **arguments)
        envelope = result["_meta"]["dev.holdfast/envelope"]
        if envelope["ok"]:
            return result["structuredContent"]
        return Failure(envelope["code"], envelope["error"], envelope["hint"], envelope.get("details", {}))

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The data of a call that succeeds."""
        envelope = await self.envelope(tool, **arguments)
        assert isinstance(envelope, dict), envelope
        return envelope

    async def fail(self, tool: str, **arguments: Any) -> Failure:
        """The failure of a call that fails."""
        envelope = await self.envelope(tool, **arguments)
        assert isinstance(envelope, Failure), envelope
        return envelope

    async def page(self, tool: str, **arguments: Any) -> str:
        """What the page wrote, in the answer of a call."""
        return inside((await self.call(tool, **arguments))["page"])

    async def ref(self, text: str, role: str = "") -> str:
        """The ref of the only element with this text and role."""
        found = await self.page("find", text=text, role=role)
        refs = re.findall(r"^\[(\w+)\]", found, re.MULTILINE)
        assert len(refs) == 1, found
        return refs[0]


def inside(page: str) -> str:
    """What is between the two lines that mark a page's text."""
    first, *lines, last = page.split("\n")
    opened, closed = re.fullmatch(r"<page (\w{8})>", first), re.fullmatch(r"</page (\w{8})>", last)
    assert opened, page
    assert closed, page
    assert opened[1] == closed[1]
    return "\n".join(lines)


@asynccontextmanager
async def run_tools(folder: Path, **options: Any) -> AsyncIterator[Client]:
    """The tools with their own browsers. `folder` is the session's folder."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir="/tmp") as base:
        Path(base).chmod(0o711)  # a confined browser of root runs as nobody
        launch = LaunchOptions(folder_base=Path(base) / "browsers", **options)
        box = stage_toolbox(launch, SessionFiles(roots=(str(folder.resolve()),)))
        try:
            yield Client(box)
        finally:
            await box.dispose()
        assert [*Path(base).glob("browsers/*")] == [], "a browser left its folder"
