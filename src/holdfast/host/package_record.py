"""What is known about a fetched package: its version, a hash of its files, and its program."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.model.folder_tree import remove_tree, walk_folders
from holdfast.model.real_path import real_path
from holdfast.model.untrusted_file import open_untrusted_file, read_untrusted_file
from holdfast.resolve.package_runner import PackageCommand, Runner

MAX_BYTES = 1024**3
"""How large the packages of one server may be."""
_MAX_ENTRIES = 200_000  # files and folders of one package
_MAX_PACKAGES = 50  # how many are kept; those that were not used for the longest time are removed
# Files that the package managers write for themselves. They differ at each installation, or depend on whether a version was given.
_FOLDERS_OF_PIPX = ("shared", "logs", ".cache")
_FILES_OF_MANAGERS = re.compile(
    r"[^/]+|node_modules/\.package-lock\.json|tools/[^/]+/uv-receipt\.toml|pipx/venvs/[^/]+/pipx_metadata\.json"
)
_MAX_JSON_BYTES = 1024 * 1024  # the maximum size of a record or a `package.json`


class PackageRecord(msgspec.Struct, frozen=True):
    """What is known about a fetched package. The record lies next to the package's folder, where no confined process can change it."""

    version: str
    integrity: str
    """A hash of all files."""
    program: str
    """The path of the program to run, relative to the folder."""
    is_compiled: bool = False
    """Whether its Python modules are compiled. False right after the installation, and in records of earlier versions of Holdfast."""


def read_record(folder: Path) -> PackageRecord | None:
    """The record of the package in a folder; None if there is no complete package. Blocks."""
    file = folder.with_suffix(".json")
    try:
        record = msgspec.json.decode(read_untrusted_file(file, limit=_MAX_JSON_BYTES), type=PackageRecord)
        os.utime(file)  # the file's time is the time of the last use
    except (OSError, msgspec.DecodeError):
        return None
    return record if folder.is_dir() else None


def make_empty_folder(packages: Path, folder: Path) -> None:
    """Make an empty folder for a package. If there are too many packages, remove those that were not used for the longest time."""
    folder.with_suffix(".json").unlink(missing_ok=True)
    remove_tree(folder)
    folder.mkdir(parents=True)
    records = sorted(packages.glob("*.json"), key=_last_change)
    for record in records[: max(0, len(records) - _MAX_PACKAGES)]:
        record.unlink(missing_ok=True)
        # If the folder of another server cannot be removed, this server's package is fetched all the same.
        with suppress(OSError):
            remove_tree(record.with_suffix(""))


def _last_change(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # another process has just removed it
        return 0.0


def make_record(folder: Path, command: PackageCommand) -> PackageRecord:
    """Find out what was fetched. Raise ValueError if it has no program to run. Blocks."""
    program = _find_program(folder, command)
    return PackageRecord(
        version=_installed_version(folder, command), integrity=_integrity(folder), program=program
    )


def write_record(folder: Path, record: PackageRecord) -> PackageRecord:
    """Write the record of a package, which marks the package as complete. Blocks."""
    file = folder.with_suffix(".json")
    temporary = file.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.replace(file)
    return record


def is_installed_in(project: Path, command: PackageCommand) -> bool:
    """Whether the `node_modules` of a project has the program that a command runs. Blocks."""
    if command.runner not in (Runner.NPX, Runner.BUNX):
        return False
    names = [command.program or command.name.rpartition("/")[2]]
    if not command.program:
        file = project / "node_modules" / command.name / "package.json"
        with suppress(OSError, ValueError):  # untrusted: only a name is taken from it
            names.append(_default_program(_decode_manifest(file), command.name))
    return any(
        name and "/" not in name and os.path.lexists(project / "node_modules/.bin" / name) for name in names
    )


def _find_program(folder: Path, command: PackageCommand) -> str:
    """The path of the program, relative to the folder. The files in the folder are not trusted: only a name is taken from them."""
    name = command.program
    if command.runner in (Runner.UVX, Runner.PIPX):
        relative = f"bin/{name}"
    else:
        name = name or _default_program(_read_manifest(folder, command), command.name)
        relative = f"node_modules/.bin/{name}"
    if not name or "/" in name or name.startswith(".") or not os.path.lexists(folder / relative):
        raise ValueError(f"it has no program {name!r}")
    return relative


def _default_program(manifest: Mapping[str, object], package: str) -> str:
    """The name of the program that a package runner starts if the command names none; empty if that is not clear."""
    own = package.rpartition("/")[2]
    match manifest.get("bin"):
        case str():
            return own
        case dict() as programs:  # pyright: ignore[reportUnknownVariableType]
            names = [str(name) for name in programs]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            return own if own in names else names[0] if len(names) == 1 else ""
        case _:
            return ""


def _read_manifest(folder: Path, command: PackageCommand) -> dict[str, object]:
    file = folder / "node_modules" / command.name / "package.json"
    if file.is_symlink() or real_path(str(file)) != str(file):
        raise ValueError("its package.json is a link")
    return _decode_manifest(file)


def _decode_manifest(file: Path) -> dict[str, object]:
    return msgspec.json.decode(read_untrusted_file(file, limit=_MAX_JSON_BYTES), type=dict[str, object])


def _installed_version(folder: Path, command: PackageCommand) -> str:
    if command.runner in (Runner.NPX, Runner.BUNX):
        return str(_read_manifest(folder, command).get("version", ""))[:100]
    wanted = command.name.lower().replace("-", "_")
    # Not glob, which fails if another process removes a folder (a placeholder) at that moment.
    for base, folders, _ in walk_folders(folder):
        for info in folders if base.endswith("/site-packages") else ():
            name, _, version = info.removesuffix(".dist-info").rpartition("-")
            if info.endswith(".dist-info") and name.lower().replace("-", "_") == wanted:
                return version[:100]
    return ""


def _integrity(folder: Path) -> str:
    """A hash of all files of the packages. The checksums in a `RECORD` do not suffice: `uv` does not compare the files with them."""
    digest = hashlib.sha256()
    for path in sorted(_files(folder)):
        name = os.path.relpath(path, folder)
        if not _FILES_OF_MANAGERS.fullmatch(name):
            digest.update(os.fsencode(name) + b"\0" + _hash_file_or_link(path))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[str]:
    """The files of the packages in a folder. Raise ValueError if there are too many folders."""
    for number, (base, folders, files) in enumerate(walk_folders(folder)):
        if number > _MAX_ENTRIES:
            raise ValueError("it has too many folders")
        if base == str(folder):  # leave out placeholders of the sandbox, which are being removed
            folders[:] = [name for name in folders if not name.startswith(".")]
        if base == f"{folder}/pipx":
            folders[:] = [name for name in folders if name not in _FOLDERS_OF_PIPX]
        yield from (f"{base}/{name}" for name in files)


def _hash_file_or_link(path: str) -> bytes:
    """The hash of a file's content, or of a link's target. Empty for anything else, such as a FIFO."""
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return hashlib.sha256(b"link " + os.fsencode(os.readlink(path))).digest()  # noqa: PTH115 - many files
    if not stat.S_ISREG(mode):
        return b""
    with os.fdopen(open_untrusted_file(path, follow_link=False), "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def is_too_large(folder: Path) -> bool:
    """Whether the files in a folder are too large, or too many, or nested too deeply. Blocks."""
    size = count = 0
    try:
        for base, folders, files in walk_folders(folder):
            for name in files:
                with suppress(OSError):
                    size += os.lstat(f"{base}/{name}").st_blocks * 512
            count += len(files) + len(folders)
            if size > MAX_BYTES or count > _MAX_ENTRIES:
                return True
    except OSError:  # too deep
        return True
    return False
