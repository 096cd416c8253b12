"""What a cluster gets: the device plugin, by helm or otherwise, labels, and drained nodes."""
