# Points /usr/local/cuda at $toolkit. The packages' toolkits are alternatives of Debian's; the runfile's are not.

# shellcheck disable=SC2154  # set by whoever sends it

if update-alternatives --list cuda 2>/dev/null | grep -qxF "$toolkit"; then update-alternatives --set cuda "$toolkit"
elif [ -e /usr/local/cuda ] && [ ! -L /usr/local/cuda ]; then
  echo "gpunode: /usr/local/cuda is no link, and is left alone" >&2
  echo "gpunode: remedy: move it away (\`mv /usr/local/cuda /usr/local/cuda.old\` on the node), and run again" >&2
  exit 1
else ln -sfn "$toolkit" /usr/local/cuda.gpunode-new; mv -fT /usr/local/cuda.gpunode-new /usr/local/cuda; fi
