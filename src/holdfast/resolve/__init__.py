"""Decide which servers a session gets: load → validate → admit → select → inject → confine, one file each.

After admit, `expand` fills in the variables of the admitted entries. It completes the validation, so its refusals have the
stage `validate`.
"""
