"""Further folders of a workspace: the user can bind any folder to a workspace, so that it belongs to the workspace, too.

A repository can announce its workspace in `.holdfast/workspace.toml`. This has no effect until the user agrees.
"""

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkstemp
from typing import Any, cast

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.slug import is_slug
from holdfast.model.untrusted_file import (
    is_writable_by_others,
    open_untrusted_file,
    read_descriptor,
    read_project_file,
)

ANNOUNCEMENT = ".holdfast/workspace.toml"
_FILE = "bindings.json"
_MAX_FILE_BYTES = 1024 * 1024
_MAX_ANNOUNCEMENT_BYTES = 4096
_CORRECT_FILE = "Correct the file, or delete it and bind the folders again with `holdfast workspaces bind`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A folder whose file `.holdfast/workspace.toml` names a workspace."""

    folder: str
    """The real path of the folder."""
    workspace: str
    """The slug or the name of the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """Which folders belong to which workspaces."""

    bound: Mapping[str, str] = field(default_factory=dict[str, str])
    """The slug of the workspace to which the user has bound a folder, by the folder's real path."""
    declined: Mapping[str, str] = field(default_factory=dict[str, str])
    """The slug of the workspace that a folder announced, and to which the user does not want to bind it, by the folder's real path."""
    slug_folders: Mapping[str, str] = field(default_factory=dict[str, str])
    """The folder of the workspace that has a slug or had it before it was removed, by slug."""

    def bind(self, folder: str, slug: str) -> "Bindings":
        return replace(self, bound={**self.bound, folder: slug}, declined=_without(self.declined, folder))

    def decline(self, folder: str, slug: str) -> "Bindings":
        return replace(self, bound=_without(self.bound, folder), declined={**self.declined, folder: slug})

    def forget(self, folder: str) -> "Bindings":
        return replace(self, bound=_without(self.bound, folder), declined=_without(self.declined, folder))

    def forget_workspace(self, slug: str) -> "Bindings":
        bound, declined = (
            {path: other for path, other in answers.items() if other != slug}
            for answers in (self.bound, self.declined)
        )
        return replace(self, bound=bound, declined=declined)

    def with_slug_folder(self, slug: str, path: str) -> "Bindings":
        """Add which folder a slug belongs to. An empty path does not replace a known one."""
        return replace(
            self, slug_folders={**self.slug_folders, slug: path or self.slug_folders.get(slug, "")}
        )


def read_bindings(registry_folder: Path) -> Bindings:
    """Read the stored bindings.

    Raises if the file is damaged or other users can change it, because the limits of a workspace must apply in its bound folders.
    """
    file = registry_folder / _FILE
    try:
        descriptor = open_untrusted_file(file, follow_link=False)
    except FileNotFoundError:
        return Bindings()
    except OSError as error:
        raise _bad_file(file, f"it cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid not in (os.geteuid(), 0):
            raise _bad_file(file, "it belongs to another user", "Replace it with a copy of your own.")
        if is_writable_by_others(status):
            command = shlex.join(["chmod", "go-w", str(file)])
            raise _bad_file(file, "other users can change it", f"Check its content, then run: {command}")
        content: Any = json.loads(read_descriptor(descriptor, limit=_MAX_FILE_BYTES, name=str(file)))
    except OSError as error:
        raise _bad_file(file, f"it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise _bad_file(file, "it is not valid JSON") from None
    finally:
        os.close(descriptor)
    if not isinstance(content, dict):
        raise _bad_file(file, "it is not a JSON object")
    table = cast("dict[str, object]", content)
    return Bindings(
        bound=_parse_slugs(file, table.get("bound")),
        declined=_parse_slugs(file, table.get("declined")),
        slug_folders=_parse_slug_folders(file, table.get("used")),
    )


def write_bindings(registry_folder: Path, bindings: Bindings) -> None:
    """Replace the stored bindings. The caller must hold the registry's lock."""
    descriptor, temporary = mkstemp(prefix=".new-", dir=registry_folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            content = {
                "bound": {**bindings.bound},
                "declined": {**bindings.declined},
                "used": {**bindings.slug_folders},
            }
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(registry_folder / _FILE)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_announcement(folder: Path) -> Announcement | None:
    """Read which workspace the nearest announcement names: that of the folder, or else of the nearest parent folder that has one.

    None if there is no announcement, or if the nearest one is invalid. Links in the path must be resolved.
    """
    above = _find_announcing_folder(folder)
    name = "" if above is None else _read_name(above)[0]
    return Announcement(folder=str(above), workspace=name) if name else None


def find_announcement_problem(folder: Path) -> str:
    """Say what is wrong with the file that announces a folder's workspace. Empty if the file is valid or missing.

    Links in the folder's path must be resolved.
    """
    above = _find_announcing_folder(folder)
    problem = "" if above is None else _read_name(above)[1]
    return f"{above / ANNOUNCEMENT}: {problem}." if above is not None and problem else ""


def _find_announcing_folder(folder: Path) -> Path | None:
    """The folder, or its nearest parent, that has an announcement. The search ends at the root of the repository or of the file system."""
    for above in (folder, *folder.parents):
        if os.path.lexists(above / ANNOUNCEMENT):
            return above
        if os.path.lexists(above / ".git"):
            return None
    return None


def _read_name(folder: Path) -> tuple[str, str]:
    """Return the workspace's name in the folder's file, and what is wrong with the file. One of them is empty."""
    import tomllib

    try:
        text = read_project_file(folder, ANNOUNCEMENT, limit=_MAX_ANNOUNCEMENT_BYTES).decode("utf-8")
        name = tomllib.loads(text).get("workspace")
    except OSError as error:
        return "", f"it cannot be read: {error.strerror}"
    except tomllib.TOMLDecodeError as error:
        return "", f"it is not valid TOML: {error}"
    except (ValueError, RecursionError):
        return "", "it is not valid TOML in UTF-8"
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        return "", 'it does not name a workspace. Write workspace = "NAME"'
    return name.strip(), ""


def _parse_slugs(file: Path, raw: object) -> dict[str, str]:
    table: dict[str, object] = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    slugs = {folder: slug for folder, slug in table.items() if isinstance(slug, str) and is_slug(slug)}
    if raw is not None and (not isinstance(raw, dict) or len(slugs) != len(table)):
        raise _bad_file(file, "it has a value that is not a workspace's slug")
    return slugs


def _parse_slug_folders(file: Path, raw: object) -> dict[str, str]:
    table: dict[str, object] = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    folders = {slug: path for slug, path in table.items() if is_slug(slug) and isinstance(path, str)}
    if raw is not None and (not isinstance(raw, dict) or len(folders) != len(table)):
        raise _bad_file(file, "it has a slug without a folder")
    return folders


def _without(answers: Mapping[str, str], folder: str) -> dict[str, str]:
    return {path: slug for path, slug in answers.items() if path != folder}


def _bad_file(file: Path, reason: str, hint: str = _CORRECT_FILE) -> HoldfastError:
    return HoldfastError(codes.BAD_WORKSPACE_FILE, f"{file}: {reason}.", hint=hint)
