"""The agent that lets a model answer. pydantic-ai is imported when the first prompt needs it, so that sessions open without waiting for the import.

The package `holdfast.model` is something else: it holds the values that all packages share, such as events and errors.
"""
