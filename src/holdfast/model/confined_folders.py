"""The folders that running confined servers can write to."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from holdfast.model.process import Confinement


class ConfinedFolders:
    """The roots of all confined servers that are running. Any path below them can become a symbolic link at any time."""

    def __init__(self) -> None:
        self._roots: Counter[str] = Counter()

    @contextmanager
    def running(self, confinement: Confinement | None) -> Iterator[None]:
        """Count a server's roots while it runs; None for a server that is not confined."""
        roots = confinement.roots if confinement is not None else ()
        self._roots.update(roots)
        try:
            yield
        finally:
            for root in roots:
                self._roots[root] -= 1
                if not self._roots[root]:
                    del self._roots[root]

    def contain(self, path: str) -> bool:
        """Whether a confined server can write to a folder above this real path."""
        return any(str(parent) in self._roots for parent in PurePosixPath(path).parents)
