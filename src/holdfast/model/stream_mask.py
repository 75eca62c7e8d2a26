"""Mask known secrets in a text that arrives in pieces."""

from holdfast.model.mask import Mask, hide_spans
from holdfast.model.secret_text import MASKED


class StreamMask:
    """Masks a stream of text. The end of a piece is held back only while it is the beginning of a known secret.

    What is held back is shorter than a secret's longest piece, and the cost of a piece does not depend on the text
    before it.
    """

    def __init__(self, mask: Mask) -> None:
        self._index = mask.index
        self._sent = ""  # already returned, but what follows may complete a secret
        self._sent_is_masked = False
        self.held = ""

    def feed(self, piece: str) -> str:
        """The text that can be shown after this piece."""
        text = self._sent + self.held + piece
        spans = self._index.find(text)
        unfinished = self._index.find_unfinished(text)
        if not spans and unfinished == len(text):
            shown = text[len(self._sent) :]
            self._sent = self.held = ""
            return shown
        begin, end = len(self._sent), max(unfinished, spans[-1][1] if spans else 0)
        shown = self._show(text, spans, begin, end)
        self._sent_is_masked = unfinished < end and (end > begin or self._sent_is_masked)
        self._sent, self.held = text[unfinished : max(unfinished, end)], text[end:]
        return shown

    def flush(self) -> str:
        """What is held back, at the end of a message. If the next message completes the secret, its rest is masked."""
        held, self.held = self.held, ""
        if not held:
            return ""
        self._sent += held
        self._sent_is_masked = self._index.is_nearly_whole(self._sent)
        return MASKED if self._sent_is_masked else held

    def _show(self, text: str, spans: list[tuple[int, int]], begin: int, end: int) -> str:
        """The text between two positions, masked."""
        here = [(max(first, begin), last) for first, last in spans if last > begin]
        if here and self._sent_is_masked and spans[-len(here)][0] < begin:  # the mask was shown before
            begin = here.pop(0)[1]
        return hide_spans(text[begin:end], [(first - begin, last - begin) for first, last in here])
