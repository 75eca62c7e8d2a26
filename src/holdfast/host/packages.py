"""Fetch the packages of confined servers that a package runner (`npx`, `uvx`, `bunx`, `pipx run`) starts.

Fetching is confined: it reaches the registry and sees none of the session's folders. The packages of each server are kept in a
folder of their own. The server runs with that folder read-only, and gets no access to the registry. Servers that are not confined do
not use these folders.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from holdfast.host.package_install import (
    FETCH_SECONDS,
    compile_command,
    install_command,
    wait_for_installation,
)
from holdfast.host.package_record import (
    MAX_BYTES,
    PackageRecord,
    is_installed_in,
    make_empty_folder,
    make_record,
    read_record,
    write_record,
)
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.quota import Quota
from holdfast.model.real_path import real_path
from holdfast.model.server import PackageGrant, ServerSpec, Source, Stdio
from holdfast.model.worker_threads import WorkerThreads
from holdfast.resolve.confine import BYTECODE_VARIABLE
from holdfast.resolve.package_runner import PackageCommand, parse_package_command
from holdfast.resolve.read_program import read_program
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.view import RefusedHost, without_default_port
from holdfast.settings import Settings

_LOCK_SECONDS = 0.1  # between two attempts to get the lock
_QUOTA = Quota(memory_bytes=4 * 1024**3, file_bytes=MAX_BYTES // 2)
_THREADS = WorkerThreads("packages", threads=2)
# Variables that name the registry to use. Addresses with credentials are not passed on.
_REGISTRY_VARIABLES = ("NPM_CONFIG_REGISTRY", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
# Files with the certificates of further authorities, such as a company's, for the registry's TLS.
_CERTIFICATE_VARIABLES = (
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_CAFILE",
    "npm_config_cafile",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
)


class RegistryNeededError(HoldfastError):
    """A package could not be fetched, because the sandbox refused the hosts in `hosts`."""

    def __init__(self, message: str, hosts: Sequence[str]) -> None:
        super().__init__(codes.SPAWN_FAILED, message)
        self.hosts = tuple(hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPackage:
    """A package in its folder, and the command that runs it from there."""

    folder: str
    argv: tuple[str, ...]
    grant: PackageGrant
    """What an approval of the server with this package contains."""

    def apply_to(self, confinement: Confinement) -> Confinement:
        """The confinement with the folder visible, read-only. No link or file in the folder decides what else is mounted."""
        return replace(
            confinement,
            readable=(*confinement.readable, self.folder),
            untrusted=(*confinement.untrusted, self.folder),
            scripts=(),
        )


def package_to_fetch(argv: Sequence[str], folder: str) -> PackageCommand | None:
    """The package that must be fetched for a command; None if there is none, or if the project in this folder has it installed. Blocks."""
    command = parse_package_command(argv)
    if command is None:
        return None
    return None if folder and is_installed_in(Path(folder), command) else command


class Packages:
    """The packages of all confined servers of this user."""

    def __init__(self, settings: Settings, keeper: Keeper, environ: Mapping[str, str]) -> None:
        self._folder = settings.servers.packages
        self._registries = settings.servers.registries
        self._reachable = settings.servers.reachable
        self._keeper = keeper
        self._environ = environ

    async def prepare(self, spec: ServerSpec) -> ServerSpec:
        """For a confined server that a package runner starts, the spec that runs its fetched package. Other specs are returned unchanged."""
        stdio = spec.transport
        if not isinstance(stdio, Stdio) or spec.confinement is None or spec.source is Source.CLIENT:
            return spec
        roots = spec.confinement.roots
        folder = roots[0] if roots else ""
        argv = (stdio.command, *stdio.args)
        command = await run_with_file_timeout(package_to_fetch, argv, folder, path=folder)
        if command is None:
            return spec
        if spec.source is Source.PROJECT and spec.package is None:
            raise HoldfastError(
                codes.NOT_APPROVED,
                f"The package of {spec.name!r} was not fetched when you approved it. Run: holdfast servers approve",
            )
        fetched = await self.fetch(spec.origin, spec.name, command, granted=spec.package)
        env = stdio.env
        if BYTECODE_VARIABLE in env and not await self._runs_files_of_project(stdio, folder):
            # This variable would hide the compiled modules of the package and of Python, so that each start compiles them again.
            env = {name: value for name, value in env.items() if name != BYTECODE_VARIABLE}
        transport = replace(stdio, command=fetched.argv[0], args=fetched.argv[1:], env=env)
        return replace(spec, transport=transport, confinement=fetched.apply_to(spec.confinement))

    async def _runs_files_of_project(self, stdio: Stdio, folder: str) -> bool:
        """Whether the command runs files of the project, or may do so."""
        if stdio.module_folders:
            return True
        argv, search_path = (stdio.command, *stdio.args), self._environ.get("PATH", "")
        program = await run_with_file_timeout(read_program, argv, folder, search_path, path=folder)
        return bool(program.parts or program.problem)

    async def fetch(
        self,
        origin: str,
        name: str,
        command: PackageCommand,
        *,
        granted: PackageGrant | None = None,
        registries: tuple[str, ...] = (),
    ) -> FetchedPackage:
        """The package of the server that `name` and `origin` identify. Fetch it if it is not in its folder yet.

        It may be fetched from the registries in the settings, those that were granted, and `registries`. With `granted`, raise
        if the package is not as it was approved.
        """
        key = hashlib.sha256(
            json.dumps([origin, name, command.runner, command.packages]).encode()
        ).hexdigest()[:32]
        folder = self._folder.resolve() / key
        hosts = (*self._registries, *(granted.registries if granted is not None else ()), *registries)
        async with locked(folder.with_suffix(".lock"), package=" ".join(command.packages)):
            record = await _THREADS.run(read_record, folder)
            if record is None or (granted is not None and record.integrity != granted.integrity):
                await _THREADS.run(make_empty_folder, self._folder, folder)
                wanted = (
                    command.pinned(granted.version) if granted is not None and granted.version else command
                )
                record = await self._install(folder, wanted, tuple(dict.fromkeys(hosts)))
            if not record.is_compiled:
                with _report_unusable(command):
                    record = await self._compile(folder, command, record)
        if granted is not None and record.integrity != granted.integrity:
            raise HoldfastError(
                codes.NOT_APPROVED,
                f"The package of {name!r} is not the one that you approved: {command.name} {record.version} has other"
                " files now. To review it, run: holdfast servers approve",
            )
        return FetchedPackage(
            folder=str(folder),
            argv=(f"{folder}/{record.program}", *command.args),
            grant=PackageGrant(
                version=record.version,
                integrity=record.integrity,
                registries=registries or (granted.registries if granted is not None else ()),
            ),
        )

    async def _install(
        self, folder: Path, command: PackageCommand, registries: tuple[str, ...]
    ) -> PackageRecord:
        """Install the packages in a sandbox, and find out what was installed."""
        argv, variables = install_command(command, str(folder))
        registry_variables = {
            variable: value
            for variable in _REGISTRY_VARIABLES
            if (value := self._environ.get(variable)) and "@" not in value
        }
        certificates = await _THREADS.run(_find_certificates, self._environ)
        spec = ProcessSpec(
            argv=argv,
            env={**self._variables(), **registry_variables, **certificates, **variables},
            cwd=str(folder),
            confinement=Confinement(
                roots=(str(folder),),
                readable=tuple(dict.fromkeys(certificates.values())),
                # Never empty: without network, there is no proxy, and refused hosts are not noticed.
                network=registries or ("registry.invalid",),
                allowed_private_hosts=self._reachable,
                logs_refused=False,  # the error names the refused hosts
                quota=_QUOTA,
            ),
        )
        code, written, refused = await self._run(spec, folder, command)
        if code != 0:
            raise _fetch_error(command, refused, written)
        with _report_unusable(command):
            return await _THREADS.run(make_record, folder, command)

    async def _compile(self, folder: Path, command: PackageCommand, record: PackageRecord) -> PackageRecord:
        """Compile the Python modules of a package, and write its record.

        The record was made before this, because it has a hash of all files, and compiled modules differ at each installation.
        """
        if argv := await _THREADS.run(compile_command, command, str(folder)):
            confinement = Confinement(roots=(str(folder),), quota=_QUOTA)
            spec = ProcessSpec(argv=argv, env=self._variables(), cwd=str(folder), confinement=confinement)
            await self._run(spec, folder, command)
        return await _THREADS.run(write_record, folder, msgspec.structs.replace(record, is_compiled=True))

    def _variables(self) -> dict[str, str]:
        search_path = self._environ.get("PATH", os.defpath)
        return {"PATH": search_path, "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}

    async def _run(
        self, spec: ProcessSpec, folder: Path, command: PackageCommand
    ) -> tuple[int, str, Sequence[RefusedHost]]:
        """Run a confined command. Return its exit code, its last output, and the hosts that the sandbox refused."""
        child = await self._keeper.spawn(spec)
        try:
            code, written = await wait_for_installation(child, folder, package=" ".join(command.packages))
        finally:
            child.close()
            await child.end(0.0)
        return code, written, child.view.refused_hosts if child.view is not None else ()


@contextmanager
def _report_unusable(command: PackageCommand) -> Iterator[None]:
    """If the block raises because of the package's files, say that the package cannot be run."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{' '.join(command.packages)} was fetched, but cannot be run: {error}. Check the name of the package.",
        ) from None


def _find_certificates(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the host's environment that name files with certificates, with the real paths. Blocks."""
    certificates: dict[str, str] = {}
    for variable in _CERTIFICATE_VARIABLES:
        value = environ.get(variable, "")
        with suppress(OSError, ValueError):
            if Path(value).is_absolute() and Path(value).exists():
                certificates[variable] = real_path(value)
    return certificates


def _fetch_error(command: PackageCommand, refused: Sequence[RefusedHost], written: str) -> HoldfastError:
    """The error for a failed installation. It names the hosts that were refused, or has the last output."""
    names = " ".join(command.packages)
    # If a granted host is refused, granting another one would not help.
    if reasons := [host.reason for host in refused if host.reason]:
        return HoldfastError(
            codes.SPAWN_FAILED,
            f"{names} was not fetched: {command.runner} runs confined, and a registry that was granted is refused. {reasons[0]}",
        )
    if refused:
        hosts = [without_default_port(host.endpoint) for host in refused]
        return RegistryNeededError(
            f"{names} was not fetched: {command.runner} runs confined and tried to reach {', '.join(hosts)}."
            f" To allow that for all packages, set servers.registries to {json.dumps(hosts)} in the settings.",
            hosts,
        )
    # npm names a log that is gone together with the sandbox.
    kept = [line for line in written.strip().split("\n") if "A complete log of this run" not in line]
    lines = "\n".join(f"| {line}" for line in kept[-10:])
    return HoldfastError(codes.SPAWN_FAILED, f"{names} was not fetched. {command.runner} wrote:\n{lines}")


@asynccontextmanager
async def locked(file: Path, *, package: str, seconds: float = FETCH_SECONDS + 60) -> AsyncIterator[None]:
    """Hold a lock, so that two sessions do not fetch the same package at once. Wait for the lock at most this many seconds."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise HoldfastError(
                    codes.SPAWN_FAILED,
                    f"{package} was not fetched: another session has been fetching it for too long. Try again later.",
                )
            await asyncio.sleep(_LOCK_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
