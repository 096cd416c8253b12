"""What a machine is: its operating system, GPUs, kernel, disks, units; and what is known of changes on it."""
