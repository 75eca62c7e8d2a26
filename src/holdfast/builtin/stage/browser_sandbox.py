"""Which sandbox confines a browser, and what the browser may see and reach."""

import asyncio
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

from holdfast.builtin.stage.browser_folder import BrowserFolder
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.model.process import Confinement
from holdfast.model.quota import Quota
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.own_code import OWN_PYTHON
from holdfast.sandbox.sandbox import Availability

SandboxKind = Literal["holdfast", "chromium"]
"""Which sandbox confines the browser: Holdfast's, or Chromium's own."""

BROWSER_QUOTA = Quota(memory_bytes=4 * 1024**3, processes=2048, file_bytes=1024**3, descriptors=4096)
"""A browser with 20 tabs has about 30 processes and 300 threads."""


async def choose_sandbox(options: LaunchOptions) -> tuple[SandboxKind, BwrapSandbox | None]:
    """Choose Chromium's own sandbox in a direct session if it works, else Holdfast's. The second value is None for Chromium's own."""
    if not options.is_sandboxed and os.geteuid() != 0 and await _may_create_namespaces():
        return "chromium", None
    return "holdfast", _UntestedSandbox()


def network_confinement(options: LaunchOptions) -> Confinement:
    """Return what a browser may reach. In a direct session: everything but cloud metadata addresses and Holdfast's own ports."""
    return Confinement(
        network=options.hosts if options.is_sandboxed else ("*",),
        allowed_private_hosts=options.private_hosts if options.is_sandboxed else ("*",),
        denied_ports=options.denied_ports,
        ports_data_dir=str(options.data_dir or ""),
    )


def browser_confinement(program: str, folder: BrowserFolder, options: LaunchOptions) -> Confinement:
    """Return what a browser in Holdfast's sandbox sees and reaches: its own folder, and the allowed hosts."""
    return replace(
        network_confinement(options),
        roots=(str(folder.path),),
        readable=readable_by_browser(program),
        unix_sockets=True,  # Chromium does not start without them. No other program has a socket in its folder.
        quota=BROWSER_QUOTA,
        lower_priority=options.is_sandboxed,
    )


def readable_by_browser(program: str) -> tuple[str, ...]:
    """Return what a browser reads outside of the system's folders: its own files, and the configuration and the cache of fonts."""
    own = str(Path(program).resolve().parent)
    fonts = [path for path in ("/etc/fonts", "/var/cache/fontconfig") if Path(path).is_dir()]
    return (*fonts, *(() if own.startswith("/usr/") else (own,)))


def can_user_nobody_read_own_code() -> bool:
    """Return whether the user `nobody` can read Holdfast's code. A part of it runs in the sandbox as the same user as the browser.

    If Holdfast is installed in a folder that only root can enter, the browser runs as root, but without capabilities.
    """
    folders = {folder for path in (sys.executable, OWN_PYTHON, __file__) for folder in Path(path).parents}
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


class _UntestedSandbox(BwrapSandbox):
    """Holdfast's sandbox without the test before its first use: if the sandbox does not work, the browser does not start."""

    async def check(self) -> Availability:
        return Availability(works=True)


async def _may_create_namespaces() -> bool:
    """Return whether Chromium's own sandbox can work. On Linux it needs user namespaces."""
    try:
        process = await asyncio.create_subprocess_exec(
            "/usr/bin/unshare",
            "--user",
            "--net",
            "true",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return sys.platform != "linux"
    return await process.wait() == 0
