"""Sessions: servers, calls, turns, permission, and the record of events."""
