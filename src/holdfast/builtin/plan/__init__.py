"""The built-in server `plan`: shows the agent's plan."""
