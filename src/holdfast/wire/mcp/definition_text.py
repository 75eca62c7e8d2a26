"""Clean the texts of what servers list: tools, prompts, resources and templates."""

from holdfast.model.visible_text import strip_invisible

MAX_TEXT_LENGTH = 8 * 1024  # a longer text in a definition is shortened


def clean_text(text: str, part: str, notes: set[str]) -> str:
    """Remove invisible characters from a text, and shorten it if it is long. Add to `notes` what was changed.

    `part` says in the notes where the text is, such as "its description".
    """
    start = text[: 2 * MAX_TEXT_LENGTH]  # cut first, because cleaning a long text would block the event loop
    clean = strip_invisible(start)
    if clean != start:
        notes.add(f"invisible characters were removed from {part}")
    if len(clean) > MAX_TEXT_LENGTH or len(text) > len(start):
        notes.add(f"a text of {len(text)} characters in {part} was shortened to {MAX_TEXT_LENGTH}")
        clean = clean[:MAX_TEXT_LENGTH] + "…"
    return clean
