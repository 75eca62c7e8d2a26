"""First-party tools, on the toolkit that anybody can use."""
