"""Find the tool or the server that a mistyped name may have meant."""

from collections.abc import Iterable


def closest_tool(name: str, tools: Iterable[str]) -> str:
    """The tool whose name (`server.tool`) is most similar; empty if none is. Server and tool are compared separately.

    Otherwise the server's name, which is the same for all its tools, would make each of them similar.
    """
    from difflib import get_close_matches

    known = [*tools]
    server, dot, tool = name[:120].rpartition(".")  # cut, because difflib takes quadratic time
    if not dot:
        return next(iter(get_close_matches(tool, known, n=1)), "")
    by_server: dict[str, list[str]] = {}
    for full_name in known:
        by_server.setdefault(full_name.rpartition(".")[0], []).append(full_name.rpartition(".")[2])
    for similar_server in get_close_matches(server, by_server, n=1):
        for similar_tool in get_close_matches(tool, by_server[similar_server], n=1):
            return f"{similar_server}.{similar_tool}"
    return ""


def suggest_name(name: str, names: Iterable[str]) -> str:
    """` Did you mean …?` with the most similar of these names; empty if none is."""
    from difflib import get_close_matches

    close = get_close_matches(name[:80], [*names], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def suggest_tool(name: str, tools: Iterable[str]) -> str:
    """` Did you mean …?` with the most similar of these tools; empty if none is similar.

    A prefix that some hosts and servers put before the name of a tool is ignored.
    """
    from difflib import get_close_matches

    known = [*tools]
    without_dots = name[:120].replace(".", "_")
    meant = [tool for tool in known if without_dots.endswith(f"_{tool.replace('.', '_')}")]
    meant = meant or get_close_matches(without_dots, known, n=1)
    return f" Did you mean {max(meant, key=len)!r}?" if meant else ""
