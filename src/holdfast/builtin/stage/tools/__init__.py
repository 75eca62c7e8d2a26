"""The handlers of the stage tools, in one module for each group of related tools."""
