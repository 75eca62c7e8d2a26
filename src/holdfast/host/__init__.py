"""The composition root: opens, finds and closes sessions."""
