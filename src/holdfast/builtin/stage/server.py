"""Makes the toolbox of the server `stage`."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from holdfast import __version__
from holdfast.builtin.stage.codes import STAGE_CODES
from holdfast.builtin.stage.fence import EXPLANATION
from holdfast.builtin.stage.files import SessionFiles
from holdfast.builtin.stage.first_browser import FirstBrowser
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.builtin.stage.owners import Owners
from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.keeper.client import KeeperClient
from holdfast.toolkit import Toolbox

_THREADS = WorkerThreads("stage-start", threads=1)

INSTRUCTIONS = (
    "A browser. `open` a page; its answer is an outline with refs such as [e12], which the other tools take. Every action "
    f"answers with what changed. {EXPLANATION}"
)


def stage_toolbox(options: LaunchOptions, files: SessionFiles) -> Toolbox:
    """Return the toolbox with the stage tools. A browser starts at a caller's first `open`, or earlier if `options.early` says so."""
    owners = Owners(FirstBrowser(options))
    box = _make_box(owners, has_lifespan=options.early != "nothing")
    _add_tools(box, owners, options, files)
    return box


def stage_toolbox_to_serve(
    options: LaunchOptions, files: SessionFiles, starter: KeeperClient | None
) -> Toolbox:
    """Return the toolbox of `stage_toolbox`, but add its tools when the server starts, while the first browser is prepared.

    `starter` is the client of the keeper process that starts the first browser; None to start a new keeper process.
    """
    owners = Owners(FirstBrowser(options, starter))
    box = _make_box(owners, lambda: _add_tools(box, owners, options, files), has_lifespan=True)
    return box


def _make_box(owners: Owners, on_start: Callable[[], None] | None = None, *, has_lifespan: bool) -> Toolbox:
    """Return a toolbox without tools. Its lifespan starts the first browser, and calls `on_start` in a thread."""
    first_browser = owners.first_browser

    @asynccontextmanager
    async def lifespan(_: Toolbox) -> AsyncIterator[None]:
        first_browser.begin()
        try:
            if on_start is not None:
                await _THREADS.run(on_start)
            yield
        finally:
            await first_browser.discard()

    box = Toolbox(
        "stage",
        version=__version__,
        instructions=INSTRUCTIONS,
        envelope="meta",
        listing="short",
        lifespan=lifespan if has_lifespan else None,
    )
    for code in STAGE_CODES:
        box.code(code.name, http=code.http_status, hint=code.hint, retryable=code.retryable)
    box.dispose_at_end(owners.stages)
    return box


def _add_tools(box: Toolbox, owners: Owners, options: LaunchOptions, files: SessionFiles) -> None:
    from holdfast.builtin.stage.add_tools import add_tools

    add_tools(box, owners, files, is_sandboxed=options.is_sandboxed)
