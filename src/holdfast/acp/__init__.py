"""The editors' door: the Agent Client Protocol, version 1."""
