"""CRI-O, which knows the runtime nvidia by a drop-in: what it is, and what is to be done about it."""
