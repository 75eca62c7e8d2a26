"""Run the server. The process that starts its browsers is started first, and gets ready while the tools are imported."""

import sys
from contextlib import suppress

from holdfast.sandbox.keeper.client import KeeperClient


def main(arguments: list[str]) -> None:
    """Serve the tools."""
    starter = _start_keeper()
    from holdfast.builtin.stage.options import read_options
    from holdfast.builtin.stage.server import stage_toolbox

    options, files = read_options(arguments)
    stage_toolbox(options, files, starter).main(arguments)


def _start_keeper() -> KeeperClient | None:
    """A client whose keeper process is starting. The process exits when this one does, even if it is never used."""
    if sys.platform != "linux":
        return None
    client = KeeperClient()
    with suppress(OSError):  # the first browser tries again, and reports the failure
        client.open()
    return client
