"""IMEX: the nodes of an NVLink domain over several machines, its service, and what it says of the domain."""
