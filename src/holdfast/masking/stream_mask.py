"""Mask known secrets in a text that arrives in pieces."""

from holdfast.masking import MASKED
from holdfast.masking.escapes import may_have_escapes
from holdfast.masking.mask import Mask, mask_spans
from holdfast.masking.obtained_secrets import CONTEXT_TOKEN_START, skip_token

_SHORT = 3
"""How many characters of a secret may be shown."""


class StreamMask:
    """Masks a stream of text. The end of a piece is delayed while it may be the beginning of a known secret.

    The delayed text is at most `MAX_ENCODED_LENGTH` characters long, and the time for a piece does not depend on the earlier pieces.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._sent = ""  # the end of the text that was returned already, if a secret may begin in it
        self._sent_is_masked = False  # `[masked]` was returned in place of `_sent`
        self._is_in_token = False  # the last piece ended within a signed token
        self.delayed = ""  # the end of the last piece that is delayed

    def set_mask(self, mask: Mask) -> None:
        self._mask = mask

    @property
    def is_short(self) -> bool:
        """Whether the delayed text, with the text before it, is too short to reveal the secret that may begin in it."""
        return len(self._sent) + len(self.delayed) <= _SHORT

    def feed(self, piece: str) -> str:
        """Add a piece, and return the text that can be shown now."""
        if self._is_in_token:
            piece = skip_token(piece)
            if not piece:
                return ""
            self._is_in_token = False
        # Find the whole secrets, and the index from which the text may be an unfinished secret.
        text = self._sent + self.delayed + piece
        is_plain = not may_have_escapes(text)
        spans = self._mask.find(text) if self._mask.contains(text, is_plain=is_plain) else []
        if spans and spans[-1][1] == len(text) and CONTEXT_TOKEN_START in text[spans[-1][0] :]:
            self._is_in_token = True
            unfinished = len(text)
        else:
            unfinished = self._mask.find_partial_at_end(text, is_plain=is_plain)
        if not spans and unfinished == len(text):
            shown = text[len(self._sent) :]
            self._sent = self.delayed = ""
            return shown
        # Return the text up to the unfinished secret, without what was returned already. A whole secret may overlap the unfinished
        # one, and is returned as `[masked]`.
        begin, end = len(self._sent), max(unfinished, spans[-1][1] if spans else 0)
        shown = self._mask_part(text, spans, begin, end)
        self._sent_is_masked = unfinished < end and (end > begin or self._sent_is_masked)
        self._sent, self.delayed = text[unfinished : max(unfinished, end)], text[end:]
        return shown

    def flush(self) -> str:
        """End a message, and return its delayed text.

        If a secret begins in this text and continues in the next piece, its continuation is masked. If the text is nearly the whole secret,
        it is masked, too.
        """
        text, self.delayed = self.delayed, ""
        if not text:
            return ""
        self._sent += text
        self._sent_is_masked = self._mask.ends_with_nearly_whole(self._sent)
        return MASKED if self._sent_is_masked else text

    def _mask_part(self, text: str, spans: list[tuple[int, int]], begin: int, end: int) -> str:
        """The masked text from `begin` to `end`."""
        shown_spans = [(max(first, begin), last) for first, last in spans if last > begin]
        if shown_spans and self._sent_is_masked and spans[-len(shown_spans)][0] < begin:
            begin = shown_spans.pop(0)[1]  # `[masked]` was already returned for this span
        return mask_spans(text[begin:end], [(first - begin, last - begin) for first, last in shown_spans])
