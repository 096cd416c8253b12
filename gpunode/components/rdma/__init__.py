"""RDMA devices of a node, and which of them the RDMA shared device plugin would give to pods."""
