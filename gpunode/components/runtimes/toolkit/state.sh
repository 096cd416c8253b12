# Prints the toolkit's packages and configuration, where its runtime is, CDI specifications and links of devices. Needs
# the node's packages (facts/packages.py) and the units nvidia-cdi-refresh.path and .service (system/unit.sh).
# Takes NAMES of the packages of one version; HOLD and LOCKLIST, the files that hold them by apt and by dnf (by dnf 5:
# VERSIONLOCK); CONFIGURATION, the toolkit's own; DAEMONS, units of container runtimes, and RUNTIMES, the programs that
# they call; REFRESH_SETTINGS, a file of variables for the unit; LINK_RULE, gpunode's udev rule.
#
# cdi=FILE TEXT is a file that may be a CDI specification of NVIDIA's GPUs, compressed where the node has gzip. Where
# there is one: gone=PATH is what it names and what the node does not have, number=MAJOR:MINOR DEVICE each device node
# of NVIDIA's, major=NUMBER NAME what the kernel has for them, minor=UUID NUMBER each GPU's device, and
# capability=FILE NUMBER an instance's.

locked=
case "$MANAGER" in
  apt) [ ! -f "$HOLD" ] || echo "hold_text=$(file_base64 "$HOLD")";;
  dnf)
    if locking; then
      echo locking=yes
      if [ -s "$LOCKLIST" ]; then locked=yes; echo "hold_text=$(file_base64 "$LOCKLIST")"; fi
    else
      for plugin in /usr/lib/python3*/*-packages/dnf-plugins/versionlock.py; do
        [ ! -f "$plugin" ] || echo locking=off
      done
    fi;;
  dnf5)
    echo locking=yes
    if [ -s "$VERSIONLOCK" ]; then locked=yes; echo "hold_text=$(file_base64 "$VERSIONLOCK")"; fi;;
  pacman) echo names=arch;;
esac
set -f; IFS=$NL
for line in $PACKAGES; do
  package=${line#* }; name=${package%% *}
  case "$name" in nvidia-container-*|libnvidia-container*|nvidia-docker*) ;; *) continue;; esac
  # rpm's epoch is none of this version's.
  case "$MANAGER" in dnf|dnf5|zypper) version=${package#* }; package="$name ${version#*:}";; esac
  echo "package=$package"
  case "$MANAGER $locked $line" in 'apt  hold '*) echo "held=$name";; 'dnf yes hold '*|'dnf5 yes hold '*)
    case " $NAMES " in *" $name "*) echo "held=$name";; esac;;
  esac
done
unset IFS; set +f
if command -v nvidia-ctk > /dev/null; then version=$(nvidia-ctk --version); echo "ctk=${version%%"$NL"*}"; fi
echo "runtime=$(command -v nvidia-container-runtime)"
[ ! -f "$CONFIGURATION" ] || echo "config=$(file_base64 "$CONFIGURATION")"
# At a folder or a loop of links of this name the toolkit ends as at a text that is not TOML; at a pipe it hangs.
case $(LC_ALL=C stat -L -c %F "$CONFIGURATION" 2>&1) in
  *levels*|directory|fifo|socket|'block special file') echo "config=$(echo '[' | base64 -w0)";;
esac
# Sets VALUE to that of a variable in the unit's environment.
variable() {
  says Environment; VALUE=
  set -f; for word in $SAID; do case "$word" in "$1"=*) VALUE=${word#*=};; esac; done; set +f
}
# The runtime looks for a program on the PATH of the daemon that starts it, and in its own list of folders.
folders=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
for daemon in $DAEMONS; do
  unit "$daemon" && says LoadState && [ "$SAID" = loaded ] || continue
  echo "daemon=$daemon"
  variable PATH; folders=$folders${VALUE:+:$VALUE}
done
looked() {
  kind=-; path=${1#@}
  # shellcheck disable=SC2086  # A folder is a word.
  case "$path" in
    */*) set -- "$1" "$path"; [ "$path" = "$1" ] || set -- "$1" "${path%.real}" "${path%.real}.real";;
    *) set -f; IFS=:; set -- "$1" $folders; unset IFS; set +f;;
  esac
  name=$1; shift
  for place in "$@"; do
    case "$path" in */*) ;; *) place=$place/$path;; esac
    if [ -f "$place" ] && [ -x "$place" ]; then kind=x; break; elif [ -e "$place" ]; then kind=e; fi
  done
  echo "file=$kind $name"
}
for name in $RUNTIMES; do looked "$name"; done
if [ -f "$CONFIGURATION" ]; then
  while read -r line || [ -n "$line" ]; do
    while :; do
      # A text with an escape in it is not what it looks like.
      case "$line" in '#'*|*\\*) break;; *[\"\']*[\"\']*) ;; *) break;; esac
      line=${line#*[\"\']}; name=${line%%[\"\']*}; line=${line#"$name"?}
      looked "$name"
    done
  done < "$CONFIGURATION"
fi

# The unit runs only where its pattern is in the kernel's list of modules. Each release has another one: it may pass
# over Debian's own drivers (modules nvidia-current, nvidia-current-open) and over compressed modules, and is none then.
release=; read -r release < /proc/sys/kernel/osrelease; modules=/lib/modules/$release/modules.dep
runs() {
  [ -r "$modules" ] || return 0
  while IFS= read -r line; do
    case "$line" in ExecCondition=*'-qE '*) ;; *) continue;; esac
    pattern=${line#*'-qE '}; quote=${pattern%"${pattern#?}"}
    pattern=${pattern#?}; pattern=${pattern%%"$quote"*}
    # Within quotes systemd takes two backslashes for one.
    case "$pattern" in *"\\\\"*) pattern=${pattern%%"\\\\"*}"\\"${pattern#*"\\\\"};; esac
    grep -qE "$pattern" "$modules"; return
  done < "$1"
}
output=
for folder in /etc /run /usr/lib /lib; do
  [ -e "$folder/systemd/system/nvidia-cdi-refresh.service" ] || continue
  runs "$folder/systemd/system/nvidia-cdi-refresh.service" || break
  unit nvidia-cdi-refresh.path
  says UnitFileState; echo "refresh=$SAID"
  VALUE=; ! unit nvidia-cdi-refresh.service || variable NVIDIA_CTK_CDI_OUTPUT_FILE_PATH
  output=${VALUE:-/var/run/cdi/nvidia.yaml}
  # What the unit's file says counts more than the unit. A last line may have no end.
  if [ -r "$REFRESH_SETTINGS" ]; then
    while read -r line || [ -n "$line" ]; do
      case "$line" in NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=*) output=${line#*=};; esac
    done < "$REFRESH_SETTINGS"
  fi
  output=${output%"${output##*[![:space:]]}"}; output=${output#[\"\']}; output=${output%[\"\']}
  echo "refresh_output=$output"; break
done

# What a run of gpunode's left behind that was cut off; the runtimes read it where it ends in .yaml.
for file in /etc/cdi/*.gpunode-new.*; do [ ! -f "$file" ] || echo "draft=$file"; done
zipped() { if command -v gzip > /dev/null; then gzip -cn; else cat; fi; }
set --
for file in /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json "$output"; do
  case "$file" in *[[:space:]]*|*.gpunode-new.*) continue;; esac
  case " $* " in *" $file "*) continue;; esac
  # A file that cannot be parsed has no kind, and in the place of the toolkit's or gpunode's own it is none of others.
  [ -s "$file" ] && [ -f "$file" ] || continue
  case "$file" in "$output"|*/etc/cdi/nvidia.yaml) ;; *) grep -qF nvidia.com/gpu "$file" || continue;; esac
  set -- "$@" "$file"
  text=$({ head -c 1048577 -- "$file" || head -c 1048577 /dev/zero; } | zipped | base64 -w0)
  echo "cdi=$file $text"
done
numbered=
if [ "$#" -gt 0 ]; then
  numbered=yes
  grep -ohE "\"?(hostPath|path)\"?: *[\"']?/[^]\"',}]*" "$@" | sed 's/^[^/]*//; s/[[:space:]]*$//' | sort -u |
    while IFS= read -r path; do [ -e "$path" ] || echo "gone=$path"; done
  while read -r number name; do case "$name" in nvidia*) echo "major=$number $name";; esac; done < /proc/devices
  for file in /proc/driver/nvidia/gpus/*/information; do
    [ ! -r "$file" ] || while IFS=: read -r key value; do
      words "$value"
      case "$key" in 'GPU UUID') uuid=$WORDS;; 'Device Minor') echo "minor=$uuid $WORDS";; esac
    done < "$file"
  done
  for file in /proc/driver/nvidia/capabilities/gpu*/mig/gi*/access \
    /proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci*/access; do
    [ ! -r "$file" ] || while read -r key number; do
      [ "$key" != DeviceFileMinor: ] || echo "capability=$file $number"
    done < "$file"
  done
fi

set --
for device in /dev/nvidia* /dev/nvidia-caps/*; do [ ! -c "$device" ] || set -- "$@" "$device"; done
[ "$#" -eq 0 ] || stat -c '%t %T %n' "$@" | while read -r major minor device; do
  number=$((0x$major)):$((0x$minor))
  # shellcheck disable=SC3013  # Each sh knows it.
  [ "$device" -ef "/dev/char/$number" ] || echo "unlinked=$device"
  [ -z "$numbered" ] || echo "number=$number $device"
done
[ ! -f "$LINK_RULE" ] || echo link_rule=yes
