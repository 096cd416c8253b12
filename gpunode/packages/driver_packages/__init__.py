"""The packages that make up the driver: which a node shall have, which are there, and what apt would do to them."""
