"""Where the browsers of all sessions keep their profiles and downloads."""

import os
import tempfile
from pathlib import Path


def browsers_folder() -> Path:
    """The folder that contains a folder for each browser of this user."""
    # The TMPDIR of root may be closed to the user `nobody`, who runs a browser that root confines.
    parent = "/tmp" if os.geteuid() == 0 else tempfile.gettempdir()
    return Path(parent) / f"holdfast-stage-{os.getuid()}"
