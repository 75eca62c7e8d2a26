"""The agent that lets a model answer. pydantic-ai is imported only when the first prompt needs it, because the import takes a second.

The package `holdfast.model` is something else: it holds the values that all packages share, such as events and errors.
"""
