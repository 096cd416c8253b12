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

# Make the node's own cgroup in a hierarchy, and go there: the namespace begins where its first process is. By the two
# left out systemd finds a unit's processes; there the namespace begins at the unit, which runc bears.
enter() {
  case ${1##*/} in systemd | unified) return ;; esac
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
  each enter
  GPUNODE_LAB_ROOT=$root exec unshare --cgroup --mount --propagation slave "$0" "$@"
fi
each move
unset GPUNODE_LAB_ROOT
exec "$@"
