"""Attach to a live session that another process of the same user on this machine has open."""
