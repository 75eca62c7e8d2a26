"""The audit: a hash chain of records of tool calls, refusals and decisions."""
