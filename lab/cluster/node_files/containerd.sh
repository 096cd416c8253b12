#!/bin/sh
# containerd.sh [WORD...]: containerd's daemon in cgroups of its own; with words containerd itself, which is what the
# unit's program is asked for.
[ "$#" -eq 0 ] || exec /usr/bin/containerd "$@"
exec "${0%/*}/in-own-cgroups.sh" /usr/bin/containerd
