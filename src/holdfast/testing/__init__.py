"""Tools for testing your own agents, tools and stores."""
