"""The host: opens, finds and closes sessions."""
