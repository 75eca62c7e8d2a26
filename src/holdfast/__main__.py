"""Runs the command `holdfast`, for `python -m holdfast`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder: a session's servers may leave modules there

from holdfast.cli import main

if __name__ == "__main__":
    main()
