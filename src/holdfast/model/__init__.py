"""The lowest layer: frozen values, and helpers for files, threads, addresses and text.

It needs only the standard library and, for calls, events and a few other values, msgspec.

The *host* owns the sessions of a process. A *root* is a folder that a session may use. A *confined* server runs in a sandbox. In a
*sandboxed* session, local servers are confined; a *direct* session has the host's rights. A *link* is a live connection to a server.
"""
