"""The time limit of calls to built-in tools that limit their time themselves, by an argument or a budget."""

SELF_LIMITED_SECONDS = 7 * 24 * 3600.0
"""After this time, the connection and the toolbox end such a call, if no limit of its own has ended it earlier."""
