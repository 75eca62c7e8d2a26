"""Who decides the next step: a model, or a person typing commands."""
