"""A number with its noun, in the singular or the plural."""


def count(number: int, noun: str) -> str:
    """`1 session` or `2 sessions`."""
    return f"{number} {noun}{'s' * (number != 1)}"
