"""Match paths against a glob such as `src/**/*.py`."""

import fnmatch
import re
from collections.abc import Sequence


class Glob:
    """`*` matches within a name, `**` any folders; a single name matches at any depth.

    The patterns are compiled here, and not kept: the caches of `fnmatch` would grow with every glob of every session.
    """

    def __init__(self, text: str) -> None:
        names = text.split("/")
        self._names = [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]

    def matches(self, path: Sequence[str]) -> bool:
        """Whether a path, given as its steps, matches. Takes at most len(path) * len(glob) comparisons."""
        names = self._names
        if len(names) == 1 and names[0] is not None:
            return names[0].match(path[-1]) is not None
        # The positions in the glob that the path so far can have reached.
        positions = self._skip_double_stars({0})
        for step in path:
            following: set[int] = set()
            for at in positions:
                if at < len(names):
                    name = names[at]
                    if name is None:
                        following.add(at)
                    elif name.match(step) is not None:
                        following.add(at + 1)
            if not following:
                return False
            positions = self._skip_double_stars(following)
        return len(names) in positions

    def _skip_double_stars(self, positions: set[int]) -> set[int]:
        """Add the positions after each `**`, because it also matches no folder at all."""
        for at, name in enumerate(self._names):
            if name is None and at in positions:
                positions.add(at + 1)
        return positions
