"""The time limit of calls to built-in tools that limit their time themselves, by an argument or a budget."""

SELF_LIMITED_SECONDS = 7 * 24 * 3600.0
"""For the limits of the connection and of the toolbox, which must not end such a call earlier."""
