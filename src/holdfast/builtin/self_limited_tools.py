"""How long a call of a built-in tool may take that limits its time itself, by an argument or a budget."""

SELF_LIMITED_SECONDS = 7 * 24 * 3600.0
"""How long the connection and the toolbox let such a call run: so long that only the tool's own limit ends it."""
