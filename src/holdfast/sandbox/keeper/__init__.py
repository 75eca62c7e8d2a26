"""The keeper: starts server processes, watches them, and ends them with the host."""
