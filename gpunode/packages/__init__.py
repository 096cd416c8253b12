"""Package managers, their repositories and keys; and which packages a driver is."""
