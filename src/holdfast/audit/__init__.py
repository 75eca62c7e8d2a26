"""The audit: a hash chain of records of tool calls, refused servers, permissions, approvals, tokens and denied requests.

`record` makes and encodes the records, `chain` hashes and verifies them, and `audit` appends them to a store. `recovery` and `delete_sessions`
are here because both record interrupted calls: one closes the sessions of dead hosts, the other deletes sessions.
"""
