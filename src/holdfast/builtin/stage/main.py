"""Run the server. What its first browser needs is started first, and gets ready while the tools are imported."""

import sys
from contextlib import suppress

from holdfast.sandbox.keeper.client import KeeperClient


def main(arguments: list[str]) -> None:
    """Serve the tools, or print their manifest."""
    is_served = "manifest" not in arguments
    starter = _start_keeper() if is_served else None
    from holdfast.builtin.stage.options import read_options
    from holdfast.builtin.stage.server import stage_toolbox, stage_toolbox_to_serve

    options, files = read_options(arguments)
    box = stage_toolbox_to_serve(options, files, starter) if is_served else stage_toolbox(options, files)
    box.main(arguments)


def _start_keeper() -> KeeperClient | None:
    """A client whose keeper process is starting. The process exits when this one does, even if it is never used."""
    if sys.platform != "linux":
        return None
    client = KeeperClient()
    with suppress(OSError):  # the first browser tries again, and reports the failure
        client.open()
    return client
