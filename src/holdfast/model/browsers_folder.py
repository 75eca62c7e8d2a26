"""Where the browsers of all sessions keep their profiles and downloads."""

import os
import tempfile
from pathlib import Path


def browsers_folder() -> Path:
    """The folder that contains a folder for each browser of this user."""
    # If root confines a browser, it runs as the user `nobody`, who may have no access to the TMPDIR of root.
    parent = "/tmp" if os.geteuid() == 0 else tempfile.gettempdir()
    return Path(parent) / f"holdfast-stage-{os.getuid()}"
