"""What a MIG configuration in the format of nvidia-mig-parted says."""
