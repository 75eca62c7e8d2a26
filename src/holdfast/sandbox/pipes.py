"""The three pipes of a server: its ends for whoever starts it, ours for the caller."""

import os
from contextlib import ExitStack
from io import FileIO
from types import TracebackType
from typing import BinaryIO, Self, cast

Files = tuple[BinaryIO, BinaryIO, BinaryIO]
"""Our ends of a server's standard input, output and error."""


class Pipes:
    """Three pipes. Leaving the block closes all that was not kept."""

    def __init__(self) -> None:
        self._theirs = ExitStack()
        self._ours = ExitStack()
        self.theirs: tuple[int, int, int] = (-1, -1, -1)

    def __enter__(self) -> Self:
        try:
            stdin, our_stdin = self._pipe(we_write=True)
            stdout, our_stdout = self._pipe(we_write=False)
            stderr, our_stderr = self._pipe(we_write=False)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.theirs = (stdin, stdout, stderr)
        self._files = (our_stdin, our_stdout, our_stderr)
        return self

    def close_theirs(self) -> None:
        """Close the server's ends, once they are handed over."""
        self._theirs.close()

    def keep(self) -> Files:
        """Our ends, which now outlive the block."""
        self._ours.pop_all()
        return self._files

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._theirs.close()
        self._ours.close()

    def _pipe(self, *, we_write: bool) -> tuple[int, BinaryIO]:
        read_end, write_end = os.pipe()
        theirs, ours = (read_end, write_end) if we_write else (write_end, read_end)
        self._theirs.callback(os.close, theirs)
        file = self._ours.enter_context(FileIO(ours, "wb" if we_write else "rb"))
        return theirs, cast(BinaryIO, file)
