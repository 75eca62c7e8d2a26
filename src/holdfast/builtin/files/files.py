"""The file tools: read, write, edit, list and find, within the session's roots and through its editor."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.files import change, disk
from holdfast.builtin.files.offlimits import off_limits
from holdfast.builtin.files.roots import Roots
from holdfast.builtin.files.search import SKIPPED, Search
from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.ports import Door, Powers
from holdfast.toolkit.annotations import Annotations
from holdfast.toolkit.believe import Spawner
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

KIND = "dev.holdfast/kind"
_MOST_TEXT = 256 * 1024
_MOST_ENTRIES = 1000
_WHERE = (
    codes.BAD_PATH,
    codes.OUTSIDE_ROOTS,
    codes.DENIED,
    codes.NO_FILE,
    codes.NOT_A_FILE,
    codes.FILE_CHANGED,
    codes.FILE_TROUBLE,
)
_TEXT = (*_WHERE, codes.NOT_TEXT, codes.FILE_TOO_LARGE, codes.EDITOR_REFUSED)

PathName = Annotated[str, "A path in the session's folder, or an absolute one in any of its directories."]
Folder = Annotated[str, "The folder to look in."]


def files(context: SessionContext, door: Door | None, own: Sequence[str] = ()) -> Service:
    """The file tools of one session, which stay out of what is Holdfast's own."""
    return toolbox(context, door, own).answers(Spawner(context))


def toolbox(context: SessionContext, door: Door | None, own: Sequence[str] = ()) -> Toolbox:
    """The tools, bound to the session's roots."""
    tools = _Files(Roots(context.roots or (context.cwd,), off_limits(own)), door)
    box = Toolbox(
        "files", version=__version__, instructions="Files of this session's folders, as its editor has them."
    )
    box.tool(title="Read a file", operation="query", codes=_names(*_TEXT), meta={KIND: "read"})(tools.read)
    box.tool(title="List a folder", operation="query", codes=_names(*_WHERE), meta={KIND: "read"})(tools.list)
    box.tool(title="Find files", operation="query", codes=_names(*_WHERE), meta={KIND: "search"})(tools.find)
    box.tool(
        title="Write a file",
        operation="command",
        codes=_names(*_TEXT),
        meta={KIND: "edit"},
        annotations=Annotations(idempotent=True),
    )(tools.write)
    box.tool(
        title="Edit a file",
        operation="command",
        codes=_names(*_TEXT, codes.NO_MATCH, codes.SEVERAL_MATCHES),
        meta={KIND: "edit"},
    )(tools.edit)
    return box


@dataclass(frozen=True, slots=True)
class _Files:
    """The handlers. A path is walked within the roots first, whoever reads or writes the file then."""

    roots: Roots
    door: Door | None

    async def read(
        self,
        path: PathName,
        first_line: Annotated[int, Meta(ge=1, description="The line to begin with.")] = 1,
        lines: Annotated[int, Meta(ge=1, le=10_000, description="How many lines at most.")] = 2000,
    ) -> dict[str, Any]:
        """Read a text file, unsaved changes in the editor included.

        A long file is given in parts: `next_line` says where to go on.
        """
        text = (await self._found(path, to_change=False)).text
        if text is None:
            raise HoldfastError(codes.NO_FILE, f"There is no file {path!r}.")
        every = text.splitlines(keepends=True)
        part: list[str] = []
        size = 0
        for line in every[first_line - 1 : first_line - 1 + lines]:
            size += len(line)
            if size > _MOST_TEXT:
                break
            part.append(line)
        if not part and len(every) >= first_line:
            part = [every[first_line - 1][:_MOST_TEXT]]
        last = first_line - 1 + len(part)
        more = {"next_line": last + 1} if last < len(every) else {}
        return {"path": path, "text": "".join(part), "first_line": first_line, "lines": len(every), **more}

    async def write(
        self, path: PathName, text: Annotated[str, "The whole text of the file."]
    ) -> dict[str, Any]:
        """Write a whole text file: a new one, folders included, or in place of the one that is there."""
        disk.encoded(path, text)
        before = await self._found(path, make=True)
        await self._put(path, text, before)
        return {
            "path": path,
            "created": before.text is None,
            "diff": change.diff(before.real, before.text, text),
        }

    async def edit(
        self,
        path: PathName,
        old: Annotated[str, "The text to replace, to the letter; it must stand there exactly once."],
        new: Annotated[str, "The text to put in its place."],
        all: Annotated[bool, "Replace it wherever it stands."] = False,  # noqa: FBT002
    ) -> dict[str, Any]:
        """Change a text file by replacing one exact piece of it."""
        before = await self._found(path)
        if before.text is None:
            raise HoldfastError(codes.NO_FILE, f"There is no file {path!r}. To make one, use `write`.")
        text, count = change.replaced(path, before.text, old, new, every=all)
        disk.encoded(path, text)
        await self._put(path, text, before)
        return {"path": path, "replaced": count, "diff": change.diff(before.real, before.text, text)}

    async def list(self, path: Folder = ".") -> dict[str, Any]:
        """List what is in a folder."""
        real, found = await asyncio.to_thread(disk.entries, self.roots, path)
        shown: list[JsonObject] = [
            {name: value for name, value in asdict(entry).items() if value is not None}
            for entry in found[:_MOST_ENTRIES]
        ]
        cut = {"cut": f"{len(found)} in all."} if len(found) > _MOST_ENTRIES else {}
        return {"folder": self.roots.shown(real), "entries": shown, **cut}

    async def find(
        self,
        glob: Annotated[str, Meta(max_length=500, description="Which files: *.py, src/**/*.ts.")] = "**",
        text: Annotated[str, Meta(max_length=1000, description="Text that a line of the file has.")] = "",
        path: Folder = ".",
        ignore_case: Annotated[bool, "Whether large and small letters are the same."] = False,  # noqa: FBT002
        limit: Annotated[int, Meta(ge=1, le=1000, description="How many answers at most.")] = 200,
    ) -> dict[str, Any]:
        """Find files by name and, with `text`, by what stands in them: as saved, and each line that has it.

        Without `path`, the session's folder is searched; `not_searched` names its other directories.
        """
        search = Search(glob=glob, text=text, ignore_case=ignore_case, limit=limit)
        real = await asyncio.to_thread(search.run, self.roots, path)
        found = [
            {name: value for name, value in asdict(hit).items() if value is not None} for hit in search.hits
        ]
        told: dict[str, Any] = {
            "folder": self.roots.shown(real),
            "found": found,
            "looked_at": search.looked_at,
        }
        if path == "." and (others := self.roots.beside(real)):
            told["not_searched"] = others
        if search.cut:
            told["cut"] = search.cut
        if not found:
            told["skipped"] = sorted(SKIPPED)
        return told

    async def _found(self, path: str, *, make: bool = False, to_change: bool = True) -> disk.Found:
        """What is at the path: on disk, and over that as the editor has it.

        Who changes a file has to know its unsaved text: the disk counts only where the editor has no such file.
        """
        found = await asyncio.to_thread(self._looked, path, make=make)
        if self.door is None or not self._powers.reads_files:
            return found
        try:
            text = await self.door.read_text(found.real)
        except HoldfastError as error:
            # Of a file that they do not have, some editors say no more than that they refuse.
            refused = error.code is codes.PEER_ERROR and (found.text is None or not to_change)
            if error.code is codes.NO_FILE or refused:
                return found
            raise _editor_refused("read", path, error) from None
        if len(text) > disk.LARGEST:
            raise HoldfastError(codes.FILE_TOO_LARGE, f"{path!r} has {len(text)} characters in the editor.")
        return disk.Found(real=found.real, text=text, mark=found.mark, mode=found.mode)

    def _looked(self, path: str, *, make: bool) -> disk.Found:
        try:
            return disk.read(self.roots, path)
        except HoldfastError as error:
            if error.code is not codes.NO_FILE or not make:
                raise
        # A folder on the way is missing; where the path leads is known once it is there.
        return disk.make_way(self.roots, path)

    async def _put(self, path: str, text: str, before: disk.Found) -> None:
        if self.door is None or not self._powers.writes_files:
            await asyncio.to_thread(disk.write, self.roots, path, text, before)
            return
        try:
            await self.door.write_text(before.real, text)
        except HoldfastError as error:
            raise _editor_refused("write", path, error) from None

    @property
    def _powers(self) -> Powers:
        return self.door.powers if self.door is not None else Powers()


def _editor_refused(verb: str, path: str, error: HoldfastError) -> HoldfastError:
    reason = error.message.strip() or "it does not say why"
    stop = "" if reason.endswith((".", "!", "?")) else "."
    return HoldfastError(codes.EDITOR_REFUSED, f"The editor did not {verb} {path!r}: {reason}{stop}")


def _names(*several: Code) -> tuple[str, ...]:
    return tuple(code.name for code in several)
