"""Settings of every host in every inventory; docs/settings.md of gpunode's checkout has them all, with defaults."""

# Strict host keys everywhere: an unknown or changed key stops the connection instead of being accepted.
ssh_strict_host_key_checking = "yes"
