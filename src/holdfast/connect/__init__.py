"""Live connections to servers, one per server and scope."""
