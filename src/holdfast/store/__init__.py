"""Storage of sessions, their events and messages, of approvals, and of the audit."""
