"""Decide which servers a session gets: load → validate → admit → select → inject → confine, one file each."""
