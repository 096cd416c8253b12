# Boots systemd in namespaces of its own, on an overlay over this machine's root, and runs a command there.
#
# boot.sh WORK COMMAND...: WORK is a folder with `unpacked` (what carry.py made); the command finds it as /opt/main-job.
# What is written goes into a tmpfs, and is gone when the command ends: other file systems of the machine are
# overlays of their own, or read-only. There is no network but a loopback interface. The GPU itself is the machine's.
# Where the machine lacks systemd or a program that gpunode needs, the carried one of Debian takes its place.
# The command writes its process number to `pid` there, by which it is ended (TERM) where this script is.
# Exit status: the command's; 69 where the machine allows no such thing, after one line that says what failed.

set -u
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
inside=; if [ "${1:-}" = --inside ]; then inside=yes; shift; fi
work=$1; shift
new=$work/root
impossible() { echo "not possible here: $*" >&2; exit 69; }

# The groups of this process' first process in its own namespace are what systemd manages.
each_group() {
  name=gpunode-main-job
  while IFS=: read -r _ controllers path; do
    case "$controllers" in
      '') for root in /sys/fs/cgroup/unified /sys/fs/cgroup; do [ -f "$root/cgroup.procs" ] && break; done;;
      name=*) root=/sys/fs/cgroup/${controllers#name=};;
      *) root=/sys/fs/cgroup/$controllers;;
    esac
    [ -f "$root/cgroup.procs" ] || continue
    folder=$root$path/$name; [ -d "$root$path" ] || folder=$root/$name
    "$1" "$folder"
  done < /proc/self/cgroup
}
# shellcheck disable=SC2329
join() {
  mkdir -p "$1" || return 0
  # An empty set of processors takes no process.
  for each in cpus mems; do
    [ ! -f "$1/cpuset.$each" ] || cat "${1%/*}/cpuset.$each" > "$1/cpuset.$each"
  done 2> /dev/null
  # Of this shell, which may be a part of another: $$ is that one's.
  read -r own _ < /proc/self/stat; echo "$own" > "$1/cgroup.procs"
}
# Groups of systemd's own lie below.
# shellcheck disable=SC2329
leave() { find "$1" -depth -type d -exec rmdir {} + 2> /dev/null; }

layered() { # layered LOWER TARGET: an overlay, else the folder itself, not to be written
  layers=$work/layers/$(printf %s "$2" | tr / _); mkdir -p "$layers/upper" "$layers/work"
  mount -t overlay -o "lowerdir=$1,upperdir=$layers/upper,workdir=$layers/work" main-job "$2" 2> /dev/null ||
    { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }
}

# Other file systems of the machine, such as the driver's; a blank in a path is \040, and such a path is left out.
others() {
  while read -r _ _ _ _ path _; do
    case "$path" in
      /|/proc|/proc/*|/sys|/sys/*|/dev|/dev/*|/run|/run/*|/tmp|/tmp/*|/var/run/*|"$work"|"$work"/*|*\\*) continue;;
      /var/lib/containers/*|/var/lib/docker/*|/var/lib/containerd/*) continue;;
    esac
    if [ -d "$path" ]; then layered "$path" "$new$path"
    elif [ -e "$new$path" ]; then mount --bind "$path" "$new$path" && mount -o remount,bind,ro "$new$path"; fi
  done < "$work/mounts"
}

devices() {
  mount -t tmpfs -o mode=755 dev "$new/dev"
  for node in 'null c 1 3' 'zero c 1 5' 'full c 1 7' 'random c 1 8' 'urandom c 1 9' 'tty c 5 0'; do
    # shellcheck disable=SC2086
    mknod -m 666 "$new/dev/"$node || impossible 'device nodes cannot be made'
  done
  for node in /dev/nvidia* /dev/fuse; do [ ! -e "$node" ] || cp -a "$node" "$new/dev/"; done
  mkdir "$new/dev/pts" "$new/dev/shm" "$new/dev/char"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$new/dev/pts"
  mount -t tmpfs shm "$new/dev/shm"
  ln -s pts/ptmx "$new/dev/ptmx"; ln -s /proc/self/fd "$new/dev/fd"
  for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "$new/dev/${number#*:}"; done
}

# Of what the machine starts by itself nothing is started a second time, and none of it touches the kernel.
units() {
  folder=$new/etc/systemd/system
  mkdir -p "$folder"; find "$folder" -depth -path '*.wants*' -delete
  for unit in systemd-udevd systemd-udev-trigger systemd-sysctl systemd-binfmt systemd-modules-load systemd-resolved \
    systemd-networkd systemd-timesyncd systemd-logind systemd-remount-fs systemd-firstboot getty.target \
    apt-daily.timer apt-daily-upgrade.timer systemd-random-seed; do
    case "$unit" in *.*) ;; *) unit=$unit.service;; esac
    ln -sf /dev/null "$folder/$unit"
  done
  lab=/usr/lib/systemd/system/gpunode-lab-hardware.service
  [ ! -f "$new$lab" ] || { mkdir "$folder/basic.target.wants"; ln -s "$lab" "$folder/basic.target.wants/"; }
  rm -f "$new/etc/fstab"; : > "$new/etc/machine-id"
}

# Files that the machine has stay; libraries that it has by the same name, too.
carried() {
  [ -x "$new/usr/lib/systemd/systemd" ] && systemd=own || systemd=carried
  (cd "$work/unpacked/programs" && find . -type d -exec mkdir -p "$new/{}" \; && find . ! -type d) |
    while read -r file; do
      file=${file#./}
      [ -e "$new/$file" ] || [ -L "$new/$file" ] || cp -a "$work/unpacked/programs/$file" "$new/$file"
    done
  # dbus runs as this user, which Debian's package makes as it is configured.
  account='messagebus:x:398:'
  grep -q '^messagebus:' "$new/etc/group" || echo "$account" >> "$new/etc/group"
  grep -q '^messagebus:' "$new/etc/passwd" || echo "${account}398::/nonexistent:/usr/sbin/nologin" >> "$new/etc/passwd"
  ldconfig -r "$new" 2> /dev/null
  echo "$systemd" > "$work/unpacked/systemd"
}

if [ -n "$inside" ]; then
  # As the machine's own namespace has it: this shell opens the file itself.
  read -r first _ < /proc/self/stat; echo "$first" > "$work/first"
  mkdir -p "$new" "$work/layers"
  # Memory, not disk: an overlay cannot lie on another one, which the machine's root may be.
  mount -t tmpfs -o mode=755,size=16g main-job "$work/layers" || impossible 'nothing can be mounted'
  layered / "$new"
  mountpoint -q "$new" || impossible 'nothing can be mounted over the root file system'
  mkdir -p "$new/opt/main-job" || impossible 'no overlay can be mounted over the root file system'
  others
  mount -t proc proc "$new/proc" || impossible 'no /proc can be mounted'
  mount -t sysfs sysfs "$new/sys" || impossible 'no /sys can be mounted'
  mount -t tmpfs -o mode=755 run "$new/run"; mount -t tmpfs -o mode=1777 tmp "$new/tmp"
  devices; units; carried
  mount --bind "$work/unpacked" "$new/opt/main-job" || impossible 'no folder can be bound'
  cd "$new" || impossible 'there is no root'
  mkdir .old
  pivot_root . .old || impossible 'the root cannot be changed'
  # shellcheck disable=SC2016
  exec chroot . /bin/sh -c 'umount -l /.old; rmdir /.old
    exec env -i container=gpunode PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/lib/systemd/systemd --unit=basic.target \
    --log-target=console --show-status=false' < /dev/null > "$work/console" 2>&1
fi

[ "$(id -u)" = 0 ] || impossible 'root is needed'
for program in unshare nsenter setsid mount pivot_root mountpoint; do
  command -v "$program" > /dev/null || impossible "there is no $program"
done
[ -x /usr/lib/systemd/systemd ] || [ -x "$work/unpacked/programs/usr/lib/systemd/systemd" ] || impossible 'no systemd'
cp /proc/self/mountinfo "$work/mounts"
first=''; job=''
# shellcheck disable=SC2329
ended() {
  trap '' HUP INT TERM PIPE
  # With its first process the whole namespace ends.
  [ -z "$first" ] || kill -KILL "$first" 2> /dev/null
  wait
  each_group leave
}
# The command puts the GPU's settings back, and is given the time for it.
# shellcheck disable=SC2329
stopped() {
  trap '' HUP INT TERM PIPE
  [ -z "$job" ] || { state kill -TERM "$(cat "$work/unpacked/pid")"; wait "$job"; } 2> /dev/null
}
trap ended EXIT
trap 'stopped; exit 1' HUP INT TERM PIPE
(
  each_group join
  exec unshare --mount --propagation private --pid --fork --uts --ipc --net --cgroup --kill-child \
    sh "$0" --inside "$work" 2> "$work/why"
) &
outer=$!
tries=0
state() { nsenter --target "$first" --mount --uts --ipc --net --pid --cgroup --root --wd "$@"; }
until [ -s "$work/first" ] && first=$(cat "$work/first") &&
  state systemctl is-system-running 2> /dev/null | grep -qE 'running|degraded'; do
  kill -0 "$outer" 2> /dev/null || { first=; cat "$work/why" >&2
    impossible "systemd did not start: $(tail -n 3 "$work/console" 2> /dev/null)"; }
  tries=$((tries + 1))
  [ "$tries" -lt 120 ] || impossible "systemd was not ready in 60 s: $(tail -n 3 "$work/console")"
  sleep 0.5
done
# A session of its own: a signal to the group would end nsenter alone, and nothing would wait for the command then.
setsid nsenter --target "$first" --mount --uts --ipc --net --pid --cgroup --root --wd "$@" < /dev/null &
job=$!
wait "$job"
status=$?
job=''
exit "$status"
