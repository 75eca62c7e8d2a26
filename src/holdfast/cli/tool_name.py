"""Splits the name of a tool, as users type it, after the name of its server."""

from collections.abc import Collection


def server_of(tool: str, servers: Collection[str]) -> str:
    """The server in `SERVER.TOOL`. Both names may contain dots, so the longest name of one of these servers counts.

    If the name begins with none of them, all before the last dot is the server.
    """
    prefixes = [tool[:index] for index, character in enumerate(tool) if character == "."]
    known = [prefix for prefix in prefixes if prefix in servers]
    return (known or prefixes or [""])[-1]
