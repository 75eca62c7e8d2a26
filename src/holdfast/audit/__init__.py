"""The audit: a hash chain of records of tool calls, refused servers, permissions, approvals, tokens and denied requests."""
