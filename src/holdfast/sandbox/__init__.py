"""Server processes, confined or not: how they are started, watched and ended."""
