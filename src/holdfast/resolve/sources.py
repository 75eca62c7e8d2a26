"""Where servers are written down on this machine, read as they are."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.model.server import Source
from holdfast.resolve.load import Document

PROJECT_FILE = ".mcp.json"
_MOST_BYTES = 4 * 1024 * 1024


def read_documents(host_file: Path, user_file: Path, project: Path | None) -> tuple[Document, ...]:
    """The files there are: the host's, the user's, and the project's own. A missing one is nobody's mistake."""
    return tuple(_read_all(host_file, user_file, project))


def _read_all(host_file: Path, user_file: Path, project: Path | None) -> Iterator[Document]:
    places = [(Source.HOST, host_file), (Source.USER, user_file)]
    if project is not None:
        places.append((Source.PROJECT, project / PROJECT_FILE))
    for source, path in places:
        document = read_document(source, path)
        if document is not None:
            yield document


def read_document(source: Source, path: Path) -> Document | None:
    """One file as it is; a file that cannot be read is a document with a problem."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _MOST_BYTES:
            problem = f"It has more than {_MOST_BYTES} bytes. A list of servers is short."
            return Document(source=source, path=str(path), problem=problem)
        return Document(source=source, path=str(path), text=path.read_bytes())
    except OSError as error:
        problem = f"It cannot be read: {error.strerror}. Check its permissions."
        return Document(source=source, path=str(path), problem=problem)
