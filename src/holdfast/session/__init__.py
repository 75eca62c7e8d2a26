"""Sessions: their servers, calls, turns and permissions, and the record of their events.

A *door* is an editor, a terminal, an MCP client or an application that is attached to a session and can reach the user. A *turn* is one
prompt, or messages of other sessions, and the agent's answer. A *sub-agent* does a task within a session; a *child session* was started
in another session, its *parent*.

The *resolution* says which servers a session gets, and a *refusal* why it does not get one. A *link* is a live connection to a server; the
session, or a run within it, owns its links as a *scope*. A *lazy* server is started when it is first needed, such as for a call of one of its tools. Tools are
*screened*: a tool whose definition is new or has changed is *withheld* until the user approves it.

The *hold* is a host's right to write to a session. An event is *pending* until it is durable.
"""
