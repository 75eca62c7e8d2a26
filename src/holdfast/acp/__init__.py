"""The front end for editors: the Agent Client Protocol (ACP), version 1."""
