"""Processes: how servers are started, confined, watched and ended."""
