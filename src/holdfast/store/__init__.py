"""Durable storage of sessions, their events and the audit."""
