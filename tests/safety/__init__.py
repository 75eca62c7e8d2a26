"""Attacks that must fail. The number in a file's name is the attack's number in docs/security.md."""
