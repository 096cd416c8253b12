# Ends an interrupted change of packages, by DNF_RUN.

dnf_run --disableplugin=versionlock remove --duplicates || {
  echo "gpunode: a change of packages was interrupted, and what it began cannot be finished" >&2
  echo "gpunode: remedy: finish it by hand (\`dnf check\` on the node names what is broken, \`dnf distro-sync\`" \
    "corrects" \
    "most of it), and run again" >&2
  exit 1; }
