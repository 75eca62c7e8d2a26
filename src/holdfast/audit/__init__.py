"""What was done, by whom, and what came of it: a chain of records that cannot be changed unseen."""
