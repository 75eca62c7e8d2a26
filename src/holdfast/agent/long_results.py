"""Splits long results into parts. `/more` shows the next part."""

_MAX_PART = 4000  # characters that are shown at once
_MAX_KEPT = 1024 * 1024  # characters that are kept for one session
_MAX_SESSIONS = 100
NO_MORE = "There is no more to show.\n"


class LongResults:
    """Keeps, for each session, the part of the last results that was not shown yet."""

    def __init__(self) -> None:
        self._not_shown: dict[str, str] = {}

    def forget(self, session: str) -> None:
        """Discard the parts of earlier results that were not shown."""
        self._not_shown.pop(session, None)

    def first_part(self, session: str, text: str) -> str:
        """Return the first part of a result. The rest is kept for `next_part`."""
        if len(text) <= _MAX_PART:
            return text
        end = text.rfind("\n", _MAX_PART // 2, _MAX_PART) + 1 or _MAX_PART
        part, rest = text[:end], text[end:]
        rest = self._not_shown.pop(session, "") + rest
        if len(self._not_shown) >= _MAX_SESSIONS:
            del self._not_shown[next(iter(self._not_shown))]
        kept = self._not_shown[session] = rest[:_MAX_KEPT]
        new_line = "" if part.endswith("\n") else "\n"
        lost = f" of {len(rest)}" if len(rest) > len(kept) else ""
        return f"{part}{new_line}({len(kept)}{lost} more characters: /more shows the next part)\n"

    def next_part(self, session: str) -> str:
        """Return the next part that was not shown; if there is none, a text that says so."""
        rest = self._not_shown.pop(session, "")
        return self.first_part(session, rest) if rest else NO_MORE
