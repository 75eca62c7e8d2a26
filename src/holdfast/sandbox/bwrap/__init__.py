"""The bubblewrap backend: namespaces, a system call filter, quotas, and a proxy for granted hosts."""
