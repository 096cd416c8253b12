# Ends an interrupted change of packages, by DNF_RUN.

dnf_run --disableplugin=versionlock remove --duplicates || {
  echo "gpunode: a change of packages was interrupted, and what it began cannot be finished; see dnf check" >&2
  exit 1; }
