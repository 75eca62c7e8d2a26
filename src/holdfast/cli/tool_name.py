"""Finds the server's name at the beginning of a tool's name, as users type it."""

from collections.abc import Collection


def server_of(tool: str, servers: Collection[str]) -> str:
    """The server in `SERVER.TOOL`. Both names may contain dots.

    It is the longest name in `servers` that `tool` begins with. If there is none, it is everything before the last dot.
    """
    prefixes = [tool[:index] for index, character in enumerate(tool) if character == "."]
    known = [prefix for prefix in prefixes if prefix in servers]
    return (known or prefixes or [""])[-1]
