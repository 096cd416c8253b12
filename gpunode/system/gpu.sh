# Prints what nvidia-smi says of the GPUs, of what gpunode/system/smi.sh asked.

printf '%s\n' "$SMI"
