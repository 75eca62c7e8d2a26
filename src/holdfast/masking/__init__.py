"""Recognise secrets, and mask them in everything that is stored, logged or listed."""
