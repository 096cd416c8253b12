"""Helm releases as data: what one is, how it differs from what is asked, what is to be done, and by which commands."""
