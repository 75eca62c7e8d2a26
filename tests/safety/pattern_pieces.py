"""Texts that a pattern nearly matches, for tests of its cost."""

import importlib
import re
from typing import Any

# The syntax tree of a pattern has no public interface.
_constants: Any = importlib.import_module("re._constants")
_parser: Any = importlib.import_module("re._parser")
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_MAX_SAMPLES = 12


def pieces(pattern: re.Pattern[Any]) -> list[str]:
    """The beginnings of texts that match the pattern, each also with a space at its end. Repeated, they make it begin again and again."""
    source = pattern.pattern
    tree = _parser.parse(source if isinstance(source, str) else source.decode("latin-1"))
    found: dict[str, None] = {}
    for sample in _samples(tree):
        for length in range(1, len(sample) + 1):
            if start := "".join(sample[:length]):
                found[start] = found[f"{start} "] = None
    return [*found]


def _samples(tree: Any) -> list[list[str]]:
    """Texts that match, in parts. Alternatives are tried one after the other, not in all combinations."""
    options = [_options(kind, value)[:_MAX_SAMPLES] for kind, value in tree]
    firsts = [each[0] for each in options]
    samples = [firsts]
    for at, each in enumerate(options):
        samples += ([*firsts[:at], option, *firsts[at + 1 :]] for option in each[1:])
    return [[part for parts in sample for part in parts] for sample in samples]


def _options(kind: Any, value: Any) -> list[list[str]]:
    """What an item of a pattern can match, each in parts."""
    match kind:
        case _constants.LITERAL:
            return [[chr(value)]]
        case _constants.IN:
            return [[char] for char in _characters(value)]
        case _constants.SUBPATTERN:
            return _samples(value[3])
        case _constants.ATOMIC_GROUP:
            return _samples(value)
        case _constants.BRANCH:
            return [sample for branch in value[1] for sample in _samples(branch)]
        case _ if kind in _REPEATS:
            least, _, inner = value
            return [sample * max(least, 1) for sample in _samples(inner)] + [[]] * (least == 0)
        case _constants.ANY | _constants.NOT_LITERAL:
            return [["a"]]
        case _:  # places such as `^`
            return [[]]


def _characters(members: Any) -> list[str]:
    if members[0][0] is _constants.NEGATE:
        return ["a"]
    found: dict[str, None] = {}
    for kind, value in members:
        match kind:
            case _constants.LITERAL:
                found[chr(value)] = None
            case _constants.RANGE:
                found[chr(value[0])] = None
            case _:
                found[" " if value is _constants.CATEGORY_SPACE else "1"] = None
    return [*found]
