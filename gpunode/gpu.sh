# Prints what nvidia-smi says of the GPUs, of what gpunode/smi.sh asked.

printf '%s\n' "$SMI"
