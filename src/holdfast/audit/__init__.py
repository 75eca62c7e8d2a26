"""The audit: a hash chain of records of tool calls, refused servers, permissions, denied requests, approvals, tokens and deleted sessions.

A *book* is one such chain. A store in a file has one book; a store that several hosts write to has one for each host. The *head* of a chain
is the number and the digest of its last record. The *anchor* is a copy of the head that is kept outside of the database.
"""
