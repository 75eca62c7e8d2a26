"""The checks of `holdfast doctor`, except those of the sandbox: settings, folders, disk, store and servers."""

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast import settings
from holdfast.audit.verify_file import verify_file
from holdfast.cli.open_session import SessionOptions, run_with_host
from holdfast.cli.open_store import run_with_read_only_store
from holdfast.cli.servers.approvals import parse_key
from holdfast.host.data_folder import DATABASE_FILE, check_data_folder
from holdfast.host.host import Host
from holdfast.model.errors import HoldfastError
from holdfast.model.plural import count
from holdfast.model.resolution import Refusal
from holdfast.settings import Settings
from holdfast.store import maintenance
from holdfast.store.store import Store
from holdfast.workspaces import WORKSPACES_FOLDER, Registry

_MIN_FREE_BYTES = 100 * 1024 * 1024  # with less, the store may soon be unable to record calls


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """The result of one check. If a check has `failed`, `holdfast doctor` exits with 1."""

    name: str
    status: Literal["ok", "warning", "failed"]
    detail: str


def check_health() -> list[HealthCheck]:
    """Check this installation, without starting a server.

    Opens a host to find the servers of this folder. If there is no store, the host creates it.
    """
    try:
        loaded = settings.load()
    except HoldfastError as error:
        return [_failed("settings", error)]
    source = str(loaded.file) if loaded.file.is_file() else f"defaults; there is no {loaded.file}"
    checks = [HealthCheck(name="settings", status="ok", detail=source)]
    if loaded.sandbox.keep and not loaded.sandbox.engine:
        detail = "sandbox.keep has no effect without sandbox.engine: bubblewrap has no containers to keep."
        checks.append(HealthCheck(name="settings", status="warning", detail=detail))
    for name, check in _CHECKS.items():
        try:
            checks += [*check(loaded)]
        except HoldfastError as error:
            checks.append(_failed(name, error))
        except OSError as error:
            detail = f"'{error.filename}': {error.strerror}." if error.filename else f"{error.strerror}."
            checks.append(HealthCheck(name=name, status="failed", detail=detail))
    return checks


def _failed(name: str, error: HoldfastError) -> HealthCheck:
    # A table has one line for each check.
    lines = f"{error.message} {error.details.get('hint', '')}".split("\n")
    detail = " ".join(line.strip() for line in lines).rstrip()
    return HealthCheck(name=name, status="failed", detail=detail)


def _check_folder(loaded: Settings) -> Iterator[HealthCheck]:
    folder = loaded.data_dir
    if not folder.exists():
        parent = next(each for each in folder.parents if each.exists())
        detail, status = f"{folder} will be created at the first use.", "ok"
        if not os.access(parent, os.W_OK | os.X_OK):
            status = "failed"
            detail = (
                f"{folder} cannot be created: {parent} cannot be written to. Set data_dir to another folder."
            )
        yield HealthCheck(name="data folder", status=status, detail=detail)
        return
    check_data_folder(folder)
    if os.access(folder, os.W_OK | os.X_OK):
        yield HealthCheck(name="data folder", status="ok", detail=str(folder))
        return
    problem = (
        f"{folder} is on a read-only disk. Mount the disk so that it can be written to, or set data_dir to another folder."
        if os.statvfs(folder).f_flag & os.ST_RDONLY
        else f"You may not write to {folder}. Change its permissions."
    )
    yield HealthCheck(name="data folder", status="failed", detail=problem)


def _check_disk(loaded: Settings) -> Iterator[HealthCheck]:
    folder = next(each for each in (loaded.data_dir, *loaded.data_dir.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    is_enough = free >= _MIN_FREE_BYTES
    advice = "" if is_enough else " Free some space: calls that cannot be recorded are refused."
    yield HealthCheck(
        name="disk",
        status="ok" if is_enough else "failed",
        detail=f"{free // (1024 * 1024):,} MiB are free.{advice}",
    )


def _check_store(loaded: Settings) -> Iterator[HealthCheck]:
    file = loaded.data_dir / DATABASE_FILE
    if not file.is_file():
        yield HealthCheck(name="store", status="ok", detail="There is no store yet.")
        return
    report = maintenance.check(file)
    verdict = verify_file(file)
    problems = list(report.problems)
    if verdict is not None and not verdict.is_intact:
        problems.append(verdict.summary)
    yield HealthCheck(
        name="store",
        status="failed" if problems else "ok",
        detail="; ".join(problems)
        or f"{count(report.sessions, 'session')}, {count(report.events, 'event')}, {report.bytes // 1024:,} KiB; the audit is intact.",
    )


def _check_workspaces(loaded: Settings) -> Iterator[HealthCheck]:
    registry = Registry(loaded.data_dir / WORKSPACES_FOLDER)
    invalid = registry.invalid
    for workspace in invalid:
        yield HealthCheck(name="workspaces", status="failed", detail=workspace.describe())
    if invalid:
        return
    for workspace in registry.list():
        if not Path(workspace.path).is_dir():
            remove = shlex.join(["holdfast", "workspaces", "remove", workspace.slug])
            detail = f"The folder of {workspace.slug!r}, '{workspace.path}', does not exist. If it is gone for good: {remove}"
            yield HealthCheck(name="workspaces", status="warning", detail=detail)
    yield HealthCheck(name="workspaces", status="ok", detail=f"{len(registry.list())} registered.")


def _check_servers(_: Settings) -> Iterator[HealthCheck]:
    options = SessionOptions(cwd=Path(), workspace="", trust=None).to_open_options()

    async def work(host: Host) -> tuple[int, tuple[Refusal, ...]]:
        _, resolution = await host.plan(options)
        return len(resolution.servers), resolution.refusals

    number, refusals = run_with_host(work)
    yield HealthCheck(
        name="servers",
        status="ok",
        detail=f"A session in this folder gets {count(number, 'server')}.",
    )
    for refusal in refusals:
        detail = f"{refusal.server}: {refusal.reason}"
        yield HealthCheck(name="servers", status="warning", detail=detail)


def _check_approvals(loaded: Settings) -> Iterator[HealthCheck]:
    """Report approvals of servers in files that no longer exist."""
    if not (loaded.data_dir / DATABASE_FILE).is_file():
        return

    async def work(store: Store) -> list[str]:
        return [approval.key for approval in await store.read(lambda tx: tx.approvals())]

    approved: set[tuple[str, str]] = set()
    for key in run_with_read_only_store(None, work):
        match parse_key(key):
            case ["server" | "confined server", str(file), str(server), *_] if file:
                approved.add((server, file))
            case _:
                pass
    for server, file in sorted(approved):
        if not Path(file).is_file():
            revoke = shlex.join(["holdfast", "servers", "revoke", server, "--file", file])
            detail = f"{server} is approved, but its file '{file}' no longer exists. To revoke the approval: {revoke}"
            yield HealthCheck(name="approvals", status="warning", detail=detail)
    yield HealthCheck(name="approvals", status="ok", detail=f"Approved servers of projects: {len(approved)}.")


_CHECKS: dict[str, Callable[[Settings], Iterator[HealthCheck]]] = {
    "data folder": _check_folder,
    "disk": _check_disk,
    "store": _check_store,
    "workspaces": _check_workspaces,
    "servers": _check_servers,
    "approvals": _check_approvals,
}
