# A function: nouveau_bound says whether nouveau has a GPU. Loaded without one it is in nobody's way.

nouveau_bound() { [ -n "$(find /sys/bus/pci/drivers/nouveau -maxdepth 1 -name '*:*' 2>/dev/null)" ]; }
