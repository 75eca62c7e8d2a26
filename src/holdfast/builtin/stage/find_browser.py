"""Finds an installed Chromium or Chrome."""

import os
import shutil
from pathlib import Path

from holdfast.sandbox.own_code import system_path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Searched before the names: Debian's `chromium`, for example, is a script that reads the user's settings and starts the first of these.
_PROGRAMS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


def find_browser(configured: str = "") -> str | None:
    """Return the path of the configured browser or, if none is configured, of an installed one. None if there is no such program."""
    if configured:
        return configured if os.access(configured, os.X_OK) else None
    for program in _PROGRAMS:
        if os.access(program, os.X_OK):
            return program
    for name in _NAMES:
        if path := shutil.which(name, path=system_path()):
            return str(Path(path).resolve())
    return None
