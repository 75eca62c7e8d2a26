"""The file tools: read, write, edit, list and find. They access only the session's folders, through its editor if it has one."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.files import disk, edit
from holdfast.builtin.files.roots import ProtectedPaths, Roots
from holdfast.builtin.files.search import SKIPPED, Search
from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.context import SessionContext
from holdfast.model.door import Door, DoorCapabilities
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

KIND = "dev.holdfast/kind"
_MAX_TEXT_CHARS = 256 * 1024
_MAX_ENTRIES = 1000
_PATH_CODES = (
    codes.BAD_PATH,
    codes.OUTSIDE_ROOTS,
    codes.DENIED,
    codes.NO_FILE,
    codes.NOT_A_FILE,
    codes.FILE_CHANGED,
    codes.FILE_ERROR,
)
_TEXT_CODES = (*_PATH_CODES, codes.NOT_TEXT, codes.FILE_TOO_LARGE, codes.EDITOR_REFUSED)

PathName = Annotated[
    str, "A path relative to the session's first folder, or an absolute path in any of its folders."
]
Folder = Annotated[str, "The folder to list or search."]


def files_service(context: SessionContext, door: Door | None, protected: Sequence[str] = ()) -> Service:
    """The file tools of one session, which deny access to the `protected` paths."""
    return files_toolbox(context, door, protected).server(EnvironmentAuthenticator(context))


def files_toolbox(context: SessionContext, door: Door | None, protected: Sequence[str] = ()) -> Toolbox:
    """The file tools for the folders of one session."""
    tools = _Files(Roots(context.roots or (context.cwd,), ProtectedPaths.of(protected)), door)
    box = Toolbox(
        "files",
        version=__version__,
        instructions="Files in this session's folders, including unsaved changes in the editor.",
    )
    box.tool(title="Read a file", operation="query", codes=_code_names(*_TEXT_CODES), meta={KIND: "read"})(
        tools.read
    )
    box.tool(title="List a folder", operation="query", codes=_code_names(*_PATH_CODES), meta={KIND: "read"})(
        tools.list
    )
    box.tool(title="Find files", operation="query", codes=_code_names(*_PATH_CODES), meta={KIND: "search"})(
        tools.find
    )
    box.tool(
        title="Write a file",
        operation="command",
        codes=_code_names(*_TEXT_CODES),
        meta={KIND: "edit"},
        annotations=Annotations(idempotent=True),
    )(tools.write)
    box.tool(
        title="Edit a file",
        operation="command",
        codes=_code_names(*_TEXT_CODES, codes.NO_MATCH, codes.SEVERAL_MATCHES),
        meta={KIND: "edit"},
    )(tools.edit)
    return box


@dataclass(frozen=True, slots=True)
class _Files:
    """The handlers. Every path is checked against the roots first, even if the editor then reads or writes the file."""

    roots: Roots
    door: Door | None

    async def read(
        self,
        path: PathName,
        first_line: Annotated[int, Meta(ge=1, description="The first line to read.")] = 1,
        lines: Annotated[int, Meta(ge=1, le=10_000, description="The maximum number of lines.")] = 2000,
    ) -> dict[str, Any]:
        """Read a text file, including unsaved changes in the editor.

        A long file is returned in parts: continue at `next_line`.
        """
        text = (await self._snapshot(path, to_change=False)).text
        if text is None:
            raise HoldfastError(codes.NO_FILE, f"There is no file {path!r}.")
        every = text.splitlines(keepends=True)
        part: list[str] = []
        size = 0
        for line in every[first_line - 1 : first_line - 1 + lines]:
            size += len(line)
            if size > _MAX_TEXT_CHARS:
                break
            part.append(line)
        if not part and len(every) >= first_line:
            part = [every[first_line - 1][:_MAX_TEXT_CHARS]]
        last = first_line - 1 + len(part)
        more = {"next_line": last + 1} if last < len(every) else {}
        return {"path": path, "text": "".join(part), "first_line": first_line, "lines": len(every), **more}

    async def write(
        self, path: PathName, text: Annotated[str, "The whole text of the file."]
    ) -> dict[str, Any]:
        """Write a whole text file. Creates missing folders; replaces an existing file."""
        disk.encode_text(path, text)
        before = await self._snapshot(path, make=True)
        await self._write(path, text, before)
        return {
            "path": path,
            "created": before.text is None,
            "diff": edit.make_diff(before.real, before.text, text),
        }

    async def edit(
        self,
        path: PathName,
        old: Annotated[str, "The exact text to replace; it must occur exactly once unless `all` is true."],
        new: Annotated[str, "The new text."],
        all: Annotated[bool, "Replace every occurrence."] = False,  # noqa: FBT002
    ) -> dict[str, Any]:
        """Change a text file by replacing an exact text in it."""
        before = await self._snapshot(path)
        if before.text is None:
            raise HoldfastError(codes.NO_FILE, f"There is no file {path!r}. To create it, use `write`.")
        text, count = edit.replace_text(path, before.text, old, new, every=all)
        disk.encode_text(path, text)
        await self._write(path, text, before)
        return {"path": path, "replaced": count, "diff": edit.make_diff(before.real, before.text, text)}

    async def list(self, path: Folder = ".") -> dict[str, Any]:
        """List a folder."""
        real, found = await asyncio.to_thread(disk.list_folder, self.roots, path)
        shown: list[JsonObject] = [
            {name: value for name, value in asdict(entry).items() if value is not None}
            for entry in found[:_MAX_ENTRIES]
        ]
        cut = (
            {"cut": f"Only the first {_MAX_ENTRIES} of {len(found)} entries are listed."}
            if len(found) > _MAX_ENTRIES
            else {}
        )
        return {"folder": self.roots.display_path(real), "entries": shown, **cut}

    async def find(
        self,
        glob: Annotated[
            str, Meta(max_length=500, description="Which files to find, such as *.py or src/**/*.ts.")
        ] = "**",
        text: Annotated[str, Meta(max_length=1000, description="Text that a line must contain.")] = "",
        path: Folder = ".",
        ignore_case: Annotated[bool, "Ignore the difference between upper and lower case."] = False,  # noqa: FBT002
        limit: Annotated[int, Meta(ge=1, le=1000, description="The maximum number of matches.")] = 200,
    ) -> dict[str, Any]:
        """Find files by name and, with `text`, by content. Unsaved changes are not searched.

        Without `path`, only the session's first folder is searched; `not_searched` lists the others.
        """
        search = Search(glob=glob, text=text, ignore_case=ignore_case, limit=limit)
        real = await asyncio.to_thread(search.run, self.roots, path)
        found = [
            {name: value for name, value in asdict(match).items() if value is not None}
            for match in search.matches
        ]
        answer: dict[str, Any] = {
            "folder": self.roots.display_path(real),
            "found": found,
            "looked_at": search.searched,
        }
        if path == "." and (others := self.roots.folders_outside(real)):
            answer["not_searched"] = others
        if search.truncated:
            answer["cut"] = search.truncated
        if not found:
            answer["skipped"] = sorted(SKIPPED)
        return answer

    async def _snapshot(self, path: str, *, make: bool = False, to_change: bool = True) -> disk.FileSnapshot:
        """The file at the path: the editor's text if it has one, else the text on disk.

        A change must be based on unsaved text, so the disk is used only if the editor does not have the file.
        """
        found = await asyncio.to_thread(self._read_disk, path, make=make)
        if self.door is None or not self._capabilities.read_files:
            return found
        try:
            text = await self.door.read_text(found.real)
        except HoldfastError as error:
            # Some editors send an error without the not-found code for a file that they do not have.
            is_missing = error.code is codes.PEER_ERROR and (found.text is None or not to_change)
            if error.code is codes.NO_FILE or is_missing:
                return found
            raise _editor_refused("read", path, error) from None
        if len(text) > disk.MAX_FILE_BYTES:
            raise HoldfastError(codes.FILE_TOO_LARGE, f"{path!r} has {len(text)} characters in the editor.")
        return disk.FileSnapshot(real=found.real, text=text, version=found.version, mode=found.mode)

    def _read_disk(self, path: str, *, make: bool) -> disk.FileSnapshot:
        try:
            return disk.read_file(self.roots, path)
        except HoldfastError as error:
            if error.code is not codes.NO_FILE or not make:
                raise
        # A parent folder is missing; the real path is known once it has been created.
        return disk.make_parents(self.roots, path)

    async def _write(self, path: str, text: str, before: disk.FileSnapshot) -> None:
        if self.door is None or not self._capabilities.write_files:
            await asyncio.to_thread(disk.write_file, self.roots, path, text, before)
            return
        try:
            await self.door.write_text(before.real, text)
        except HoldfastError as error:
            raise _editor_refused("write", path, error) from None

    @property
    def _capabilities(self) -> DoorCapabilities:
        return self.door.capabilities if self.door is not None else DoorCapabilities()


def _editor_refused(verb: str, path: str, error: HoldfastError) -> HoldfastError:
    reason = error.message.strip() or "it gave no reason"
    full_stop = "" if reason.endswith((".", "!", "?")) else "."
    return HoldfastError(codes.EDITOR_REFUSED, f"The editor did not {verb} {path!r}: {reason}{full_stop}")


def _code_names(*several: Code) -> tuple[str, ...]:
    return tuple(code.name for code in several)
