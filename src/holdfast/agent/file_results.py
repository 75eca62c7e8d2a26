"""Formats the results of the built-in file tools as text for the user."""

from collections.abc import Iterator, Mapping

from holdfast.model.json import Json


def format_file_result(data: Mapping[str, Json]) -> str | None:
    """Return the result as text; None if it is not a result of `list`, `find`, `write` or `edit`."""
    match data:
        case {"entries": list(entries), "folder": str(folder)}:
            lines = [_entry_line(entry) for entry in entries]
            return "\n".join([f"{folder}:", *(lines or ["(empty)"]), *_notes(data)])
        case {"found": list(matches)}:
            lines = [_match_line(match) for match in matches]
            return "\n".join([*(lines or ["Nothing was found."]), *_notes(data)])
        case {"path": str(path), "created": bool(created)}:
            return "\n".join([f"{path} was {'created' if created else 'written'}.", *_notes(data)])
        case {"path": str(path), "replaced": int(count)}:
            times = "once" if count == 1 else f"{count} times"
            return "\n".join([f"{path} was changed: replaced {times}.", *_notes(data)])
        case _:
            return None


def _entry_line(entry: Json) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    name, kind, size = entry.get("name", ""), entry.get("kind", ""), entry.get("size")
    if kind in ("folder", "directory"):
        return f"{name}/"
    return f"{name}  ({size} bytes)" if isinstance(size, int) else f"{name}{f'  ({kind})' if kind else ''}"


def _match_line(match: Json) -> str:
    if not isinstance(match, dict):
        return str(match)
    line, text = match.get("line"), match.get("text")
    place = f"{match.get('path', '')}:{line}" if line is not None else str(match.get("path", ""))
    return f"{place}: {str(text).strip()}" if text is not None else place


def _notes(data: Mapping[str, Json]) -> Iterator[str]:
    for key in ("note", "truncated"):
        if isinstance(text := data.get(key), str):
            yield text
    if isinstance(not_searched := data.get("not_searched"), list):
        yield f"Not searched: {', '.join(map(str, not_searched))}"
