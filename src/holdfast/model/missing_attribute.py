"""The error for an attribute that does not exist, with what to write instead."""

from collections.abc import Mapping


def missing_attribute(thing: object, name: str, advice: Mapping[str, str]) -> AttributeError:
    """The error for `thing.name`. `advice` has what to write instead of names that other libraries use."""
    instead = f" Write: {advice[name]}" if name in advice else ""
    kind = type(thing).__name__
    return AttributeError(f"{kind!r} object has no attribute {name!r}.{instead}", name=name, obj=thing)
