"""Recognise secrets, and mask them in everything that is stored, logged or listed.

* A *known secret* is from the configuration or the environment. It is masked wherever it occurs.
* An *obtained secret* is one that the process gets while it runs, such as the token of a login. It is masked like a known secret.
* A *likely secret* is recognised by its name, its position or its random look. It is masked in logs, errors and listings.
"""
