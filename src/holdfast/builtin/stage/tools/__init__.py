"""The handlers of the stage tools, one module for each family."""
