"""A node in the cluster: what it carries of ours, its labels, and whether it is cordoned."""
