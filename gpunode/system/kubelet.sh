# Prints kubelet=VERSION.

if command -v kubelet > /dev/null; then printed kubelet "$(timeout -k 2 10 kubelet --version)"; fi
