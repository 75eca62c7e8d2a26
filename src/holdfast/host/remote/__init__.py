"""Attaching to a session that another process of the same user has open: `listener` runs in that process, `client` in the one that attaches."""
