# Prints the toolkits under /usr/local and in /opt/cuda, the default link, nvcc, the profile script, and an installation
# that was interrupted.

for toolkit in /usr/local/cuda-*; do
  [ -d "$toolkit" ] && [ ! -L "$toolkit" ] || continue
  # NVIDIA's uninstaller leaves what is not its own.
  only=
  for file in "$toolkit"/* "$toolkit"/.[!.]* "$toolkit"/..?*; do
    if [ -e "$file" ] || [ -L "$file" ]; then only="$only ${file##*/}"; fi
  done
  [ "$only" != ' .gpunode-release' ] || continue
  echo "toolkit=$toolkit"
  # No package brings the uninstaller: only NVIDIA's own installer leaves it.
  [ ! -e "$toolkit/bin/cuda-uninstaller" ] || echo "runfile=$toolkit"
  # NVIDIA's version.json may tell a date (12.6.20241114): what gpunode installed bears a record, good for that file.
  file=$toolkit/version.json
  if [ -e "$toolkit/.gpunode-release" ] && read -r release recorded < "$toolkit/.gpunode-release"; then
    if [ -r "$file" ]; then sum=$(sha256sum < "$file"); else sum=$(sha256sum < /dev/null); fi
    [ "$recorded" != "${sum%% *}" ] || echo "release=$toolkit $release"
  fi
  [ -r "$file" ] || continue
  inside=
  while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in *'"cuda"'*:*) inside=yes;; *) [ -n "$inside" ] || continue;; esac
    case "$line" in *'"version"'*:*\"*\"*)
      told=${line##*'"version"'}; told=${told#*:}; told=${told#*\"}; told=${told%%\"*}
      case "$told" in ''|*[!0-9.]*) ;; *) echo "told=$toolkit $told"; break;; esac;;
    esac
    case "$line" in *'"cuda"'*) ;; *'}'*) inside=;; esac
  done < "$file"
done
if [ -x /opt/cuda/bin/nvcc ] && [ ! -L /opt/cuda ]; then
  said=$(/opt/cuda/bin/nvcc --version)
  # What Arch's package puts into /etc/profile.d is not ours.
  case "$said" in *'release '*', V'*) said=${said##*, V}; echo "arch=${said%%[!0-9.]*}";; esac
fi
[ ! -e /usr/local/cuda ] || echo "default=$(readlink -f /usr/local/cuda)"
if [ -x /usr/local/cuda/bin/nvcc ]; then
  set -f; IFS=$NL
  for line in $(/usr/local/cuda/bin/nvcc --version); do
    case "$line" in *release*) printf 'nvcc=%s\n' "$line";; esac
  done
  unset IFS; set +f
fi
script=/etc/profile.d/cuda.sh; [ ! -d /opt/cuda ] || script=/etc/profile.d/gpunode-cuda.sh
[ ! -e "$script" ] || echo profile=yes
transaction=/var/lib/gpunode/transactions/cuda
if [ -r "$transaction.json" ] && [ -r "$transaction.sh" ]; then
  began=
  while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in *'"state": "began"'*) began=yes; break;; esac
  done < "$transaction.json"
  [ -z "$began" ] || sed -n 's/^version=\([0-9.]*\)$/interrupted=\1/p' "$transaction.sh" | head -n 1
fi
