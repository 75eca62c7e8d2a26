"""The audit: a hash chain of records of tool calls, refused servers, permissions, approvals, and attempts to use unknown tools or sessions."""
