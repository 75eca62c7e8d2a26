"""Matches paths against a glob such as `src/**/*.py`."""

import fnmatch
import re
from collections.abc import Sequence


class Glob:
    """A compiled glob. `*` matches any part of a name, `**` any number of folders. A single name matches at any depth.

    `fnmatch.fnmatch` is not used: it keeps every compiled pattern in a cache, which would grow with every session.
    """

    def __init__(self, text: str) -> None:
        names = text.split("/")
        self._names = [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]

    def matches(self, path: Sequence[str]) -> bool:
        """Return whether the path with these components matches. Makes at most len(path) * len(glob) comparisons."""
        names = self._names
        if len(names) == 1 and names[0] is not None:
            return names[0].match(path[-1]) is not None
        # Up to which positions in the glob the components so far can match.
        positions = self._skip_double_stars({0})
        for component in path:
            reached: set[int] = set()
            for at in positions:
                if at < len(names):
                    name = names[at]
                    if name is None:
                        reached.add(at)
                    elif name.match(component) is not None:
                        reached.add(at + 1)
            if not reached:
                return False
            positions = self._skip_double_stars(reached)
        return len(names) in positions

    def _skip_double_stars(self, positions: set[int]) -> set[int]:
        """Add the positions after each `**`, because it also matches no folder at all."""
        for at, name in enumerate(self._names):
            if name is None and at in positions:
                positions.add(at + 1)
        return positions
