# Prints who uses the node's GPUs: processes, and running containers with the specification that their runtime keeps
# of each. Takes SPECIFICATIONS, globs of these files, and LOOK, which tells one question from the next and is read by
# nobody; asks for nvidia-smi's answer ($SMI, gpunode/system/smi.sh).
# What $SMI says; app.rc=STATUS and app= lines of nvidia-smi's compute processes (GPU, number, program, MiB); node=
# lines of its list of GPUs and MIG devices; minor= UUID NUMBER of a GPU's device; group= PID LINE of a process's
# cgroups; container= PID FILE and the file, by gzip and base64, of those that name a GPU; docker= ID NAME, as docker
# calls its own. Cells are divided by tabs.
#
# It is the same that `crictl inspect` shows as info.runtimeSpec: files are cheaper to read than programs to start.

tab='	'
set --
for file in $SPECIFICATIONS; do [ ! -f "$file" ] || set -- "$@" "$file"; done
# shellcheck disable=SC2046  # One file each: no runtime's folder has a blank in its name.
[ "$#" -eq 0 ] || set -- $(grep -lE 'NVIDIA_VISIBLE_DEVICES|/dev/nvidia|nvidia\.com/|nvidia-container-devices' "$@")
dockers=
for file; do
  folder=${file%/*}; pid=
  for name in init.pid pidfile; do [ ! -r "$folder/$name" ] || read -r pid < "$folder/$name"; done
  # What has ended, and was not removed yet.
  [ -z "$pid" ] || [ -d "/proc/$pid" ] || continue
  printf 'container=%s\t%s\t%s\n' "$pid" "$file" "$(gzip -c "$file" | to_base64 "$file")"
  case "$folder" in */moby/*) dockers="$dockers ${folder##*/}";; esac
done
# shellcheck disable=SC2086
[ -z "$dockers" ] || ! command -v docker > /dev/null ||
  printed docker "$(timeout -k 2 15 docker inspect --format "{{.Id}}$tab{{.Name}}" $dockers)"

printf '%s\n' "$SMI"
case "$SMI" in absent*|unloaded*) exit 0;; esac
# shellcheck disable=SC2154  # Those of smi.sh.
asked() { LD_PRELOAD=$library timeout -k 2 15 "$smi" "$@"; }
apps=$(asked --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv,noheader,nounits)
echo "app.rc=$?"
printed app "$apps"
case "$SMI" in *Enabled*) printed node "$(asked -L)";; esac
minors
set -f; IFS=$NL
for line in $apps; do
  rest=${line#*, }; pid=${rest%%,*}
  case "$pid" in ''|*[!0-9]*) continue;; esac
  [ -r "/proc/$pid/cgroup" ] || continue
  while read -r group; do printf 'group=%s\t%s\n' "$pid" "$group"; done < "/proc/$pid/cgroup"
done
