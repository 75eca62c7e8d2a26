"""A list of tasks for each workspace: `holdfast builtin tasks`. Also the example of how to write a server."""
