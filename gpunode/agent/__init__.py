"""Nodes that ask for themselves: signed bundles, and what fetches and carries them out on a node."""
