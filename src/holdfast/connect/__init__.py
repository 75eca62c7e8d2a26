"""Live connections to servers: one per server, kept for its scope."""
