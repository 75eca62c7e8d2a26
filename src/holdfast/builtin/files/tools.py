"""The file tools: read, write, edit, list and find. They access only the session's folders.

In a direct session, the tools read and write files through the editor, if it offers that: see `editor_files`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.files import disk
from holdfast.builtin.files.edit import Replacement, describe_change
from holdfast.builtin.files.editor_files import EditorFiles
from holdfast.builtin.files.file_locks import FileLock, FileLocks
from holdfast.builtin.files.lines import count_lines, line_start
from holdfast.builtin.files.roots import PathSet, Roots
from holdfast.builtin.files.search import SKIPPED_FOLDERS, Search
from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.guarded_names import GUARDED_IF_PRESENT, GUARDED_NAMES
from holdfast.model.json import JsonObject
from holdfast.model.meta_keys import KIND_KEY, PREVIEW_KEY
from holdfast.model.trust import Trust
from holdfast.model.worker_threads import WorkerThreads, run_in_slices
from holdfast.resolve.unconfined_paths import UnconfinedPaths
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.call import Call
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

T = TypeVar("T")

_MAX_TEXT_CHARS = 256 * 1024  # how much of a file `read` returns at once
_MAX_CHARS_ON_LOOP = 16 * 1024  # longer texts are processed in a thread
_LOCK_SECONDS = 10.0  # how long to wait for another session that is writing the same file
_LOCK_PAUSE_SECONDS = 0.01
_MAX_CALLS = 4  # how many calls of one session run at a time, so that their texts do not fill the memory
# Only a few threads: they also compute, and a busy thread slows down the event loop, because both need the GIL.
_FILE_THREADS = WorkerThreads("files", threads=6, per_owner=1)
_SEARCH_THREADS = WorkerThreads("find", threads=2, per_owner=1)
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


def files_service(
    context: SessionContext,
    door: Door | None,
    locks: FileLocks,
    protected: Sequence[str] = (),
    confined_folders: ConfinedFolders | None = None,
    find_unconfined: Callable[[], UnconfinedPaths] = UnconfinedPaths,
) -> Service:
    """Return the in-process server with the tools of `files_toolbox`."""
    toolbox = files_toolbox(context, door, locks, protected, confined_folders, find_unconfined)
    return toolbox.server(EnvironmentAuthenticator(context))


def files_toolbox(
    context: SessionContext,
    door: Door | None,
    locks: FileLocks,
    protected: Sequence[str] = (),
    confined_folders: ConfinedFolders | None = None,
    find_unconfined: Callable[[], UnconfinedPaths] = UnconfinedPaths,
) -> Toolbox:
    """Return the file tools of one session. They refuse the `protected` paths.

    In a sandboxed session, they do not change programs that run unconfined. `find_unconfined` finds the paths of these programs. It
    is called in worker threads.

    `confined_folders` are the folders in which the host's confined servers run. The editor is not used for files there.
    """
    folders = context.roots or (context.cwd,)
    guarded_names, find_read_only = (), None
    if context.trust_level is Trust.SANDBOXED:
        guarded_names, find_read_only = (
            (*GUARDED_NAMES, *GUARDED_IF_PRESENT),
            partial(_read_only_paths, folders, find_unconfined),
        )
    roots = Roots.of(folders, PathSet.of(protected), guarded_names, find_read_only)
    editor = None
    if door is not None:
        editor = EditorFiles(door, context.trust_level, confined_folders or ConfinedFolders())
    tools = _Files(context, roots, locks, editor)
    box = Toolbox(
        "files",
        version=__version__,
        instructions="Files in this session's folders, including unsaved changes in the editor.",
    )
    box.tool(
        title="Read a file", operation="query", codes=_code_names(*_TEXT_CODES), meta={KIND_KEY: "read"}
    )(tools.read)
    box.tool(
        title="List a folder", operation="query", codes=_code_names(*_PATH_CODES), meta={KIND_KEY: "read"}
    )(tools.list)
    box.tool(
        title="Find files", operation="query", codes=_code_names(*_PATH_CODES), meta={KIND_KEY: "search"}
    )(tools.find)
    box.tool(
        title="Write a file",
        operation="command",
        codes=_code_names(*_TEXT_CODES),
        meta={KIND_KEY: "edit"},
        annotations=Annotations(idempotent=True),
    )(tools.write)
    box.tool(
        title="Edit a file",
        operation="command",
        codes=_code_names(*_TEXT_CODES, codes.NO_MATCH, codes.SEVERAL_MATCHES),
        meta={KIND_KEY: "edit"},
    )(tools.edit)
    return box


def _read_only_paths(folders: Sequence[str], find_unconfined: Callable[[], UnconfinedPaths]) -> list[str]:
    return find_unconfined().read_only_in(folders)


class _Files:
    """The handlers of one session's tools. Every path is checked against the roots, even if the editor then opens the file."""

    def __init__(
        self, context: SessionContext, roots: Roots, locks: FileLocks, editor: EditorFiles | None
    ) -> None:
        self._owner = context.payer
        self._cwd = PurePath(context.cwd)
        self._roots = roots
        self._locks = locks
        self._editor = editor
        self._calls = asyncio.Semaphore(_MAX_CALLS)
        self._searches = asyncio.Semaphore(1)

    async def read(
        self,
        path: PathName,
        first_line: Annotated[int, Meta(ge=1, description="The first line to read.")] = 1,
        lines: Annotated[int, Meta(ge=1, le=10_000, description="The maximum number of lines.")] = 2000,
    ) -> dict[str, Any]:
        """Read a text file, including unsaved changes in the editor.

        A long file is returned in parts: continue at `next_line`.
        """
        async with self._calls:
            snapshot = await self._snapshot(path, for_writing=False)
            if snapshot.text is None:
                raise HoldfastError(codes.NO_FILE, f"There is no file {path!r}.")
            text = snapshot.text
            part = await self._run_in_thread_if_long(len(text), _read_lines, text, first_line, lines)
            return {"path": path, **part, **_note(snapshot)}

    async def write(
        self, path: PathName, text: Annotated[str, "The whole text of the file."], call: Call
    ) -> dict[str, Any]:
        """Write a whole text file. Creates missing folders; replaces an existing file."""
        async with self._calls:
            await self._run_in_thread_if_long(len(text), disk.encode_text, path, text)
            if _is_preview(call):
                return await self._preview_write(path, text)
            before = await self._snapshot(path, make_parents=True)
            change = await self._describe_change(before, text)
            await self._write(path, text, before)
            return {"path": path, "created": before.text is None, **change, **_note(before)}

    async def edit(
        self,
        path: PathName,
        old: Annotated[str, "The exact text to replace; it must occur exactly once unless `all` is true."],
        new: Annotated[str, "The new text."],
        call: Call,
        all: Annotated[bool, "Replace every occurrence."] = False,  # noqa: FBT002
    ) -> dict[str, Any]:
        """Change a text file by replacing an exact text in it."""
        async with self._calls:
            before = await self._snapshot(path)
            if before.text is None:
                raise HoldfastError(codes.NO_FILE, f"There is no file {path!r}. To create it, use `write`.")
            replacement = Replacement(old=old, new=new, every=all)
            size = len(before.text) + len(old) + len(new)
            text, count = await self._run_in_thread_if_long(size, replacement.apply, path, before.text)
            change = await self._describe_change(before, text)
            if not _is_preview(call):
                await self._write(path, text, before)
            return {"path": path, "replaced": count, **change, **_note(before)}

    async def list(self, path: Folder = ".") -> dict[str, Any]:
        """List a folder."""
        async with self._calls:
            listing = await run_in_slices(
                _FILE_THREADS, disk.list_folder(self._roots, path), owner=self._owner
            )
        shown: list[JsonObject] = [
            {name: value for name, value in asdict(entry).items() if value is not None}
            for entry in listing.entries
        ]
        answer: dict[str, Any] = {"folder": self._roots.display_path(listing.real_path), "entries": shown}
        if not listing.is_complete:
            answer["truncated"] = (
                f"The folder has more than {listing.total} entries; {len(shown)} are listed."
            )
        elif listing.total > len(shown):
            answer["truncated"] = f"Only the first {len(shown)} of {listing.total} entries are listed."
        return answer

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
        async with self._searches:
            real_path = await run_in_slices(_SEARCH_THREADS, search.run(self._roots, path), owner=self._owner)
        shown = [
            {name: value for name, value in asdict(match).items() if value is not None}
            for match in search.matches
        ]
        answer: dict[str, Any] = {
            "folder": self._roots.display_path(real_path),
            "found": shown,
            "checked_files": search.checked_files,
        }
        if path == "." and (others := self._roots.folders_outside(real_path)):
            answer["not_searched"] = others
        if search.stop_reason:
            answer["truncated"] = search.stop_reason
        if not shown:
            answer["skipped"] = sorted(SKIPPED_FOLDERS)
        return answer

    async def _preview_write(self, path: str, text: str) -> dict[str, Any]:
        """Return the change that `write` would make. No folder is created."""
        try:
            return await self._describe_change(await self._snapshot(path), text)
        except HoldfastError as error:
            if error.code is not codes.NO_FILE:
                raise
            return await self._run_in_thread_if_long(
                len(text), describe_change, str(self._cwd / path), None, text
            )

    async def _describe_change(self, before: disk.FileSnapshot, text: str) -> dict[str, Any]:
        size = len(before.text or "") + len(text)
        return await self._run_in_thread_if_long(size, describe_change, before.real_path, before.text, text)

    async def _snapshot(
        self, path: str, *, for_writing: bool = True, make_parents: bool = False
    ) -> disk.FileSnapshot:
        """Read the file at the path: the editor's text if the editor has the file, else the text on disk."""
        on_disk = await _FILE_THREADS.run(self._read_disk, path, for_writing, make_parents, owner=self._owner)
        if self._editor is None:
            return on_disk
        return await self._editor.read(path, on_disk, for_writing=for_writing)

    def _read_disk(self, path: str, for_writing: bool, make_parents: bool) -> disk.FileSnapshot:  # noqa: FBT001
        try:
            return disk.read_file(self._roots, path, for_writing=for_writing)
        except HoldfastError as error:
            if error.code is not codes.NO_FILE or not make_parents:
                raise
        # A parent folder is missing; the real path is known once it has been created.
        return disk.make_parents(self._roots, path)

    async def _write(self, path: str, text: str, before: disk.FileSnapshot) -> None:
        if self._editor is not None:
            through_editor = await self._editor.may_write(before.real_path)
            with await self._lock(path, before) if through_editor else nullcontext():
                if await self._editor.write(path, text, before):
                    return
        await self._retry_until_unlocked(path, disk.write_file, self._roots, self._locks, path, text, before)

    async def _lock(self, path: str, before: disk.FileSnapshot) -> FileLock:
        return await self._retry_until_unlocked(path, disk.lock_file, self._roots, self._locks, path, before)

    async def _retry_until_unlocked(self, path: str, function: Callable[..., T | None], *args: Any) -> T:
        """Call the function until it returns a true value. A false value means that another session has locked the file."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while not (done := await _FILE_THREADS.run(function, *args, owner=self._owner)):
            if time.monotonic() > deadline:
                raise HoldfastError(
                    codes.FILE_CHANGED, f"Another session is writing {path!r}. Nothing was written."
                )
            await asyncio.sleep(_LOCK_PAUSE_SECONDS)
        return done

    async def _run_in_thread_if_long(self, size: int, function: Callable[..., T], *args: Any) -> T:
        """Call a function that processes `size` characters: in a thread if there are many, else on the event loop."""
        if size <= _MAX_CHARS_ON_LOOP:
            return function(*args)
        return await _FILE_THREADS.run(function, *args, owner=self._owner)


def _is_preview(call: Call) -> bool:
    """Return whether the host only asks what the call would change.

    Callers cannot set this: only the host reaches this server, and it removes the key from their `_meta`.
    """
    return call.meta.get(PREVIEW_KEY) is True


def _note(snapshot: disk.FileSnapshot) -> dict[str, Any]:
    return {"note": snapshot.note} if snapshot.note else {}


def _read_lines(text: str, first_line: int, max_lines: int) -> JsonObject:
    """Return the part of a text that `read` returns: whole lines, or the beginning of a line that is too long."""
    total = count_lines(text)
    start = line_start(text, first_line)
    part = text[start : start + _MAX_TEXT_CHARS]
    end = line_start(part, max_lines + 1)
    more: JsonObject = {}
    if end == len(part) and start + end < len(text):  # the part may end in the middle of a line
        end = part.rfind("\n") + 1
        if not end:
            end = len(part)
            line_end = text.find("\n", start)
            length = (line_end if line_end >= 0 else len(text)) - start
            more = {
                "truncated": f"Line {first_line} has {length} characters; only the first {end} are shown."
            }
    part = part[:end]
    last_line = first_line - 1 + count_lines(part)
    if last_line < total:
        more["next_line"] = last_line + 1
    return {"text": part, "first_line": first_line, "lines": total, **more}


def _code_names(*error_codes: Code) -> tuple[str, ...]:
    return tuple(code.name for code in error_codes)
