"""The host: opens, finds and closes sessions.

`Host` is what applications and front ends use; `compose` makes its parts. `Opener` opens a session: `Admission` decides what the session
may use, `SessionStorage` stores it, and `LiveSessions` has it until it is closed. `Approvals` has what people approved. `remote`
attaches to sessions that another process has open.
"""
