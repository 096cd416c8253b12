"""What needs something that not everybody has (live repositories, hardware, a cluster): skipped where it is missing."""
