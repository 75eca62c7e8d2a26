"""The host: opens, finds and closes sessions.

`Host` is what applications and front ends use; `compose` makes its parts. `Opener` opens a session: `Admission` decides what the session
may use, `SessionStorage` stores it, and `LiveSessions` keeps it until it is closed. `Approvals` stores what people approved. `remote`
connects processes, so that one can attach to a session that another has open.
"""
