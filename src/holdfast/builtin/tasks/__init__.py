"""A task list for each workspace: `holdfast builtin tasks`. Also an example of a server written with the toolkit."""
