"""Attaching to a session that another process of the same user has open: `listener` is the end of that process, `client` the other one."""
