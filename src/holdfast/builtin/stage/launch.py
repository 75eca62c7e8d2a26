"""Start Chromium, confined, with every request through the egress check; end it with everything that it left."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import stat
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Literal, cast

from holdfast.builtin.stage.browser_folder import BrowserFolder
from holdfast.builtin.stage.cdp import protocol
from holdfast.builtin.stage.cdp.connection import CdpError, Connection, ConnectionLostError, NoAnswerError
from holdfast.builtin.stage.cdp.pipe import PipeTransport
from holdfast.builtin.stage.codes import LAUNCH_FAILED, NO_BROWSER
from holdfast.builtin.stage.find_browser import find_browser
from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement, ProcessSpec, Quota
from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.bwrap.arguments import PROXY_PORT
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.bwrap.egress_proxy import EgressProxy
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.own_code import OWN_PYTHON
from holdfast.sandbox.sandbox import Availability
from holdfast.toolkit import ToolError

log = logging.getLogger(__name__)

Walls = Literal["holdfast", "chromium"]
"""Which sandbox confines the browser: Holdfast's, or its own."""

BROWSER_QUOTA = Quota(memory_bytes=4 * 1024**3, processes=2048, file_bytes=1024**3, descriptors=4096)
"""A browser with 20 tabs has about 30 processes and 300 threads."""
_START_SECONDS = 30.0
_CLOSE_SECONDS = 1.0
_STDERR_BYTES = 4000
_THREADS = WorkerThreads("stage-folders", threads=2)
# The browser's ends of the DevTools pipes must be the descriptors 3 and 4.
_SCRIPT = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >&2'
_FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check"),
    *(
        "--window-size=1280,800",
        "--hide-crash-restore-bubble",
        "--disable-smooth-scrolling",
        "--mute-audio",
        "--disable-gpu",
    ),
    *("--password-store=basic", "--use-mock-keychain", "--disable-extensions", "--disable-default-apps"),
    *("--disable-search-engine-choice-screen", "--force-color-profile=srgb", "--disable-field-trial-config"),
    # Throttled timers would make pages in the background miss their deadlines.
    *("--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows"),
    *("--disable-renderer-backgrounding", "--disable-ipc-flooding-protection", "--disable-hang-monitor"),
    # Traffic that no page asked for.
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-pings"),
    *("--disable-client-side-phishing-detection", "--disable-domain-reliability", "--disable-breakpad"),
    *("--metrics-recording-only", "--disable-component-extensions-with-background-pages"),
    (
        "--disable-features=Translate,OptimizationHints,OptimizationGuideModelDownloading,MediaRouter,"
        "DialMediaRouteProvider,AutofillServerCommunication,CertificateTransparencyComponentUpdater,HttpsUpgrades,"
        "InterestFeedContentSuggestions,GlobalMediaControls,PaintHolding,LensOverlay,NetworkTimeServiceQuerying,Prerender2,"
        "PreconnectToSearch,SearchEnginePreconnector,SearchEnginePreconnector2,LoadingPredictorUseOptimizationGuide,"
        "AimEnabled,AimServerEligibilityEnabled,AimServerRequestOnStartupEnabled,AimServerRequestOnIdentityChangeEnabled"
    ),
    # Every request goes through the proxy, also those to this machine. Names are looked up by the proxy only.
    *("--proxy-bypass-list=<-loopback>", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"),
    *(
        "--dns-prefetch-disable",
        "--disable-quic",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    ),
    *("--gcm-checkin-url=about:blank", "--allow-browser-signin=false", "--gaia-url=http://127.0.0.1:9"),
    *("--disable-blink-features=WebTransport", "--log-level=3"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Where the browser is, and what it may reach."""

    program: str = ""
    """The path of the browser; empty to search for it."""
    is_sandboxed: bool = False
    """Whether the session is sandboxed: then the browser reaches only `hosts`, and Holdfast's sandbox confines it."""
    hosts: tuple[str, ...] = ()
    """For a sandboxed session: the hosts that the browser may reach."""
    private_hosts: tuple[str, ...] = ()
    """For a sandboxed session: those of the hosts that it may reach at private addresses."""
    denied_ports: tuple[int, ...] = ()
    """Ports of this machine that no page may reach: Holdfast's own."""
    folder_base: Path | None = None


class BrowserProcess:
    """A running Chromium. Closing it ends every one of its processes and removes its folder."""

    def __init__(
        self, connection: Connection, folder: BrowserFolder, walls: Walls, stack: AsyncExitStack
    ) -> None:
        self.connection = connection
        self.folder = folder.path
        self.walls: Walls = walls
        self._stack = stack

    async def close(self) -> None:
        """End it. If it does not end by itself within a second, kill it."""
        await self._stack.aclose()


async def launch(options: LaunchOptions) -> BrowserProcess:
    """Start a browser and wait until it answers; raises NO_BROWSER or LAUNCH_FAILED."""
    program = find_browser(options.program)
    if program is None:
        where = (
            f"{options.program!r} is not a program"
            if options.program
            else "No Chromium or Chrome is installed"
        )
        raise ToolError(NO_BROWSER, f"{where}. Install your system's package 'chromium'.")
    async with AsyncExitStack() as stack:
        try:
            walls, sandbox = await _choose_walls(options)
            folder = await _THREADS.run(BrowserFolder, options.folder_base)
            stack.push_async_callback(_THREADS.run, folder.remove)
            _write_preferences(folder)
            keeper = await stack.enter_async_context(Keeper(sandbox))
            proxy = await _open_proxy(options, walls, stack)
            if walls == "holdfast" and os.geteuid() == 0 and _can_nobody_read_own_code():
                folder.give_to_nobody()
            connection = await _start(_process(program, folder, options, walls, proxy), keeper, stack)
        except OSError as error:
            raise ToolError(LAUNCH_FAILED, f"The browser could not be started: {error}.") from None
        except HoldfastError as error:
            if isinstance(error, ToolError):
                raise
            raise ToolError(LAUNCH_FAILED, f"The browser could not be started. {error.message}") from None
        return BrowserProcess(connection, folder, walls, stack.pop_all())


async def _start(spec: ProcessSpec, keeper: Keeper, stack: AsyncExitStack) -> Connection:
    child = await keeper.spawn(spec)
    connection = Connection()
    errors = _LastLines()
    loop = asyncio.get_running_loop()
    stack.push_async_callback(child.end, _CLOSE_SECONDS)
    stack.callback(connection.close)
    errors_transport, _ = await loop.connect_read_pipe(lambda: errors, child.stderr)
    stack.callback(errors_transport.close)
    await PipeTransport.open(connection, cast("FileIO", child.stdout), cast("FileIO", child.stdin))
    try:
        await connection.send(protocol.BrowserGetVersion(), timeout=_START_SECONDS)
    except (NoAnswerError, ConnectionLostError, CdpError) as error:
        raise ToolError(
            LAUNCH_FAILED,
            f"The browser did not start: {errors.text() or error}. Run: {spec.argv[3]} --version",
        ) from None
    stack.push_async_callback(_ask_to_close, connection)
    return connection


async def _ask_to_close(connection: Connection) -> None:
    with contextlib.suppress(CdpError, ConnectionLostError, NoAnswerError):
        await connection.send(protocol.BrowserClose(), timeout=_CLOSE_SECONDS)


_PREFERENCES = {
    "net": {"network_prediction_options": 2},  # connect to nothing in advance
    "search": {"suggest_enabled": False},
    "signin": {"allowed": False, "allowed_on_next_startup": False},
    "safebrowsing": {"enabled": False},
    "alternate_error_pages": {"enabled": False},
    "credentials_enable_service": False,
    "translate": {"enabled": False},
}


def _write_preferences(folder: BrowserFolder) -> None:
    profile = folder.path / "profile" / "Default"
    profile.mkdir()
    (profile / "Preferences").write_text(json.dumps(_PREFERENCES))


def _process(
    program: str, folder: BrowserFolder, options: LaunchOptions, walls: Walls, proxy: str
) -> ProcessSpec:
    flags = [*_FLAGS, f"--user-data-dir={folder.path}/profile", f"--proxy-server={proxy}"]
    if walls != "chromium":
        flags.append("--no-sandbox")
    env = {
        "HOME": str(folder.path / "profile"),
        # Chromium puts a Unix socket there, whose path may have 107 characters. Each sandbox has its own /tmp.
        "TMPDIR": "/tmp" if walls == "holdfast" else str(folder.path),
        "PATH": os.defpath,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        **({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}),
    }
    return ProcessSpec(
        argv=("/bin/sh", "-c", _SCRIPT, program, *flags, "about:blank"),
        env=env,
        cwd=str(folder.path),
        confinement=_confinement(program, folder, options) if walls == "holdfast" else None,
    )


def _can_nobody_read_own_code() -> bool:
    """Whether a browser can run as `nobody`: a program of Holdfast's in its sandbox would run as this user, too.

    If Holdfast is installed in a folder of root's that others cannot enter, the browser runs as root without any capability.
    """
    folders = {folder for path in (sys.executable, OWN_PYTHON, __file__) for folder in Path(path).parents}
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


def allowed_hosts(options: LaunchOptions) -> Confinement:
    """What a browser may reach. For a direct session: everything but metadata addresses and Holdfast's own ports."""
    return Confinement(
        network=options.hosts if options.is_sandboxed else ("*",),
        allowed_private_hosts=options.private_hosts if options.is_sandboxed else ("*",),
        denied_ports=options.denied_ports,
    )


def _confinement(program: str, folder: BrowserFolder, options: LaunchOptions) -> Confinement:
    return replace(
        allowed_hosts(options),
        roots=(str(folder.path),),
        readable=readable_by_browser(program),
        unix_sockets=True,  # Chromium does not start without; nothing else has a socket in its folder
        quota=BROWSER_QUOTA,
    )


def readable_by_browser(program: str) -> tuple[str, ...]:
    """What a browser reads outside of the system's folders: its own files, and which fonts there are."""
    own = str(Path(program).resolve().parent)
    fonts = [path for path in ("/etc/fonts",) if Path(path).is_dir()]
    return (*fonts, *(() if own.startswith("/usr/") else (own,)))


async def _choose_walls(options: LaunchOptions) -> tuple[Walls, BwrapSandbox | None]:
    if not options.is_sandboxed and os.geteuid() != 0 and await _may_create_namespaces():
        return "chromium", None
    return "holdfast", _UntestedSandbox()


class _UntestedSandbox(BwrapSandbox):
    """Holdfast's sandbox, without the test run before its first use: the start of the browser tests it as well."""

    async def check(self) -> Availability:
        return Availability(works=True)


async def _may_create_namespaces() -> bool:
    """Whether Chromium's own sandbox can work: it needs user namespaces."""
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


async def _open_proxy(options: LaunchOptions, walls: Walls, stack: AsyncExitStack) -> str:
    """The address of the proxy that checks every request."""
    match walls:
        case "holdfast":  # its listener is inside of the sandbox
            return f"http://127.0.0.1:{PROXY_PORT}"
        case "chromium":
            proxy = EgressProxy(allowed_hosts(options))
            listener = socket.create_server(("127.0.0.1", 0))
            await proxy.serve(listener)
            stack.callback(proxy.close)
            return f"http://127.0.0.1:{listener.getsockname()[1]}"


class _LastLines(asyncio.Protocol):
    """The end of what the browser writes to standard error."""

    def __init__(self) -> None:
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data = (self._data + data)[-_STDERR_BYTES:]

    def text(self) -> str:
        lines: Sequence[str] = self._data.decode(errors="replace").split("\n")
        text = " ".join(line.strip() for line in lines[-6:] if line.strip())
        return "".join(c if c.isprintable() else " " for c in text)[:500].rstrip(".")
