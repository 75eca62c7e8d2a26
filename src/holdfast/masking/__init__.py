"""Recognise secrets, and mask them in everything that is stored, logged or listed.

* A *known secret* is from the configuration or the environment, and has at least six characters. It is masked wherever it occurs. Questions to
  the user are an exception: they show the secrets that a project or a client chose.
* An *obtained secret* is one that the process gets while it runs, such as the token of a login. It is masked like a known secret.
* A *likely secret* is recognised by its name or its position. It is masked in logs, errors, listings and the stored arguments of calls.
  In listings and URLs, a value that looks random is also a likely secret.

A *span* is the beginning and the end of a secret in a text. Long secrets are split into *fragments*, and each fragment is masked.
"""

MASKED = "[masked]"
"""What a secret is replaced by."""
