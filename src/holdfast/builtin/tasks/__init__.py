"""The built-in server `tasks`: a task list for each workspace. It is also an example of a server written with the toolkit."""
