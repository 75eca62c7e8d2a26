"""Server processes: how they are started, confined, watched and ended."""
