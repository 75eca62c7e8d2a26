"""The door for editors: the Agent Client Protocol (ACP), version 1."""
