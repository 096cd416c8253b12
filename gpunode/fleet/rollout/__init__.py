"""Waves: bring an inventory's nodes to what is asked a few at a time, and stop where they do not become well."""
