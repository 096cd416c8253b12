"""NVIDIA's device plugin: from the settings of all nodes to chart values, node labels and a RuntimeClass."""
