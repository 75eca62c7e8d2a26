"""The tools that come with Holdfast, written with its public toolkit."""
