"""The built-in server `agents`: sub-agents."""
