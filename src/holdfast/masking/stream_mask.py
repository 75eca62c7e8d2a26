"""Mask known secrets in a text that arrives in pieces."""

from holdfast.masking.likely_secrets import MASKED
from holdfast.masking.mask import Mask, mask_spans
from holdfast.masking.obtained_secrets import CONTEXT_TOKEN_START, skip_token


class StreamMask:
    """Masks a stream of text. The end of a piece is delayed only while it may be the beginning of a known secret.

    The delayed text is shorter than `MAX_PIECE_LENGTH`, and the cost of a piece does not depend on the text before it.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._sent = ""  # already returned, but what follows may complete a secret
        self._sent_is_masked = False
        self._is_in_token = False  # the text ended within a signed token
        self.pending = ""
        """The delayed text."""

    def use(self, mask: Mask) -> None:
        """Mask the text with this mask from now on."""
        self._mask = mask

    def feed(self, piece: str) -> str:
        """The text that can be shown after this piece."""
        if self._is_in_token:
            piece = skip_token(piece)
            if not piece:
                return ""
            self._is_in_token = False
        text = self._sent + self.pending + piece
        spans = self._mask.find(text)
        if spans and spans[-1][1] == len(text) and CONTEXT_TOKEN_START in text[spans[-1][0] :]:
            self._is_in_token = True
            unfinished = len(text)
        else:
            unfinished = self._mask.find_partial_at_end(text)
        if not spans and unfinished == len(text):
            shown = text[len(self._sent) :]
            self._sent = self.pending = ""
            return shown
        begin, end = len(self._sent), max(unfinished, spans[-1][1] if spans else 0)
        shown = self._show(text, spans, begin, end)
        self._sent_is_masked = unfinished < end and (end > begin or self._sent_is_masked)
        self._sent, self.pending = text[unfinished : max(unfinished, end)], text[end:]
        return shown

    def flush(self) -> str:
        """The delayed text, at the end of a message. If the next message completes the secret, its rest is masked."""
        held, self.pending = self.pending, ""
        if not held:
            return ""
        self._sent += held
        self._sent_is_masked = self._mask.is_nearly_whole(self._sent)
        return MASKED if self._sent_is_masked else held

    def _show(self, text: str, spans: list[tuple[int, int]], begin: int, end: int) -> str:
        """The text between two positions, masked."""
        here = [(max(first, begin), last) for first, last in spans if last > begin]
        if here and self._sent_is_masked and spans[-len(here)][0] < begin:  # the mask was shown before
            begin = here.pop(0)[1]
        return mask_spans(text[begin:end], [(first - begin, last - begin) for first, last in here])
