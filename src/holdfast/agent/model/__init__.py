"""The agent that lets a model answer. pydantic-ai is imported only when the first prompt needs it, because the import takes a second."""
