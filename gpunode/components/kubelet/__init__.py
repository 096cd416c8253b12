"""The kubelet of a node: what it keeps from pods and how it places them, in a drop-in or in its file."""
