"""The built-in server `team`: sessions of one workspace that work together."""
