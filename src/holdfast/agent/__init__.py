"""Agents, which decide the next step of a turn: a model, or the user typing commands. Applications can add their own."""
