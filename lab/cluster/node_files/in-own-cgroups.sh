#!/bin/sh
# in-own-cgroups PROGRAM...: run it where every cgroup hierarchy begins at the node's own cgroup.
#
# A node is a container: its systemd makes slices below the container's cgroup, and names them from there in every
# hierarchy. Kubelet and runc look from the mounts' roots, which are others. In a cgroup namespace of their own, with
# the mounts moved, both see the same: kubepods is where systemd makes it.
set -eu

# each FUNCTION: call it with every mounted hierarchy.
each() {
  for hierarchy in /sys/fs/cgroup/*; do
    if [ ! -L "$hierarchy" ] && mountpoint -q "$hierarchy"; then "$1" "$hierarchy"; fi
  done
}

# Make the node's own cgroup in a hierarchy, and go there: the namespace begins where its first process is.
enter() {
  folder=$1
  for part in $(echo "$root" | tr / ' '); do
    folder=$folder/$part
    mkdir -p "$folder"
    # A new cpuset has no CPU, and takes no process.
    if [ -e "$folder/cpuset.cpus" ] && [ -z "$(cat "$folder/cpuset.cpus")" ]; then
      for file in cpuset.cpus cpuset.mems; do cat "$folder/../$file" > "$folder/$file"; done
    fi
  done
  echo $$ > "$folder/cgroup.procs"
}

move() { mount --bind "$1$GPUNODE_LAB_ROOT" "$1"; }

if [ -z "${GPUNODE_LAB_ROOT:-}" ]; then
  root=$(sed -n 's,^[0-9]*:name=systemd:\(.*\)/init.scope$,\1,p' /proc/1/cgroup)
  unit=$(sed -n 's,^[0-9]*:name=systemd:,,p' /proc/self/cgroup)
  each enter
  export GPUNODE_LAB_ROOT="$root" GPUNODE_LAB_UNIT="$unit"
  exec unshare --cgroup --mount --propagation slave "$0" "$@"
fi
# Back to where systemd looks for the unit's processes.
echo $$ > "/sys/fs/cgroup/systemd/$GPUNODE_LAB_UNIT/cgroup.procs"
each move
unset GPUNODE_LAB_ROOT GPUNODE_LAB_UNIT
exec "$@"
