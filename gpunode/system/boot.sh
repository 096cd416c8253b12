# Prints what decides whether the next boot has an NVIDIA module; nothing is unpacked and nothing is built.
# Takes LOOKED_INTO: "RELEASE TIME" of images that hold no nouveau; and the functions of gpunode/system/initramfs.sh.
#
# DKMS' own tree is read instead of asking dkms, which takes a second on a slow node. An initramfs is made from
# /etc/modprobe.d: one older than every blacklist of nouveau is looked into, once (operations/initramfs.py keeps a
# record). A blacklist's time is that of its inode, since a package's file bears the day on which it was built.

read -r running < /proc/sys/kernel/osrelease
echo "running=$running"
# When this boot began is when pid 1 did: a container's kernel is its host's. The kernel counts hundredths of a second.
while read -r name value rest; do [ "$name" != btime ] || break; done < /proc/stat
read -r line < /proc/1/stat
# shellcheck disable=SC2086  # The numbers are words.
set -- ${line##*) }
[ "$#" -lt 20 ] || { shift 19; echo "started=$((value + $1 / 100))"; }
file=/usr/lib/modules/$running/pkgbase
if [ -r "$file" ]; then base=; read -r base < "$file"; echo "base=$base"; fi

set --
for file in /etc/modprobe.d/*.conf /usr/lib/modprobe.d/*.conf /lib/modprobe.d/*.conf; do
  [ ! -e "$file" ] || set -- "$@" "$file"
done
blacklist=; blacklisted=
if [ "$#" -gt 0 ]; then
  said=$(grep -lE '^[[:space:]]*(blacklist|install|alias)[[:space:]]+nouveau' "$@")
  set --; set -f; IFS=$NL
  for file in $said; do set -- "$@" "$file"; blacklisted=${file##*/}$NL$blacklisted; done
  if [ "$#" -gt 0 ]; then
    for time in $(stat -c %Z "$@"); do
      [ -n "$blacklist" ] && [ "$blacklist" -le "$time" ] || blacklist=$time
    done
  fi
  unset IFS; set +f
fi
[ -z "$blacklist" ] || echo "blacklist=$blacklist"

# compiler RELEASE sets $gcc to the major version of the compiler that built a kernel. Its configuration tells that in
# its first lines, and is long.
compiler() {
  gcc=
  [ -r "/boot/config-$1" ] || return
  lines=0
  while [ "$lines" -lt 50 ] && IFS= read -r line; do
    lines=$((lines + 1))
    case "$line" in CONFIG_CC_VERSION_TEXT=*gcc*\ [0-9]*.*\")
      gcc=${line%\"}; gcc=${gcc##* }
      case "${gcc#*.}" in *[!0-9.]*) gcc=; return;; esac
      gcc=${gcc%%.*}; case "$gcc" in *[!0-9]*) gcc=;; esac
      return;;
    esac
  done < "/boot/config-$1"
}
# of_module RELEASE sets $version and $signer of the nvidia module on a kernel's disk.
of_module() {
  version=; signer=
  set -f; IFS=$NL
  for line in $(modinfo -k "$1" nvidia nvidia-current nvidia-current-open); do
    case "$line" in
      filename:*) [ -z "$version" ] || break; signer=;;
      version:*) version=${line##* };;
      signer:*) signer=${line#signer:};;
    esac
  done
  unset IFS; set +f
  words "$signer"; signer=
  while [ -n "$WORDS" ]; do
    signer=$signer${signer:+_}${WORDS%% *}
    case "$WORDS" in *' '*) WORDS=${WORDS#* };; *) WORDS=;; esac
  done
}
# holds_nouveau LIST says whether an initial file system with these files would load it.
holds_nouveau() {
  case "$1$NL" in */nouveau.ko*) ;; *) return 1;; esac
  rest=$blacklisted
  while [ -n "$rest" ]; do
    file=${rest%%"$NL"*}; rest=${rest#*"$NL"}
    case "$NL$1$NL" in *"/$file$NL"*|*"$NL$file$NL"*) return 1;; esac
  done
}
# Of all at once: to look for the records and the times of each would be two programs for each kernel.
records=
[ ! -r "$LOOKED_INTO" ] || while IFS= read -r line || [ -n "$line" ]; do records=$records$NL$line; done < "$LOOKED_INTO"
records=$records$NL
for image in /boot/vmlinuz-*; do
  release=${image#/boot/vmlinuz-}
  [ -e "$image" ] || continue
  # A kernel to rescue by is for any machine, and made anew by nobody.
  case "$release" in *[!A-Za-z0-9._+~-]*|0-rescue-*) continue;; esac
  # Arch's are named after their package, and say in their folder which one that is.
  base=
  for pkgbase in /usr/lib/modules/*/pkgbase; do
    [ -r "$pkgbase" ] || continue
    name=; read -r name < "$pkgbase"; [ "$name" = "$release" ] || continue
    base=$release; release=${pkgbase%/pkgbase}; release=${release##*/}; break
  done
  headers=no; [ ! -e "/lib/modules/$release/build/Makefile" ] || headers=yes
  written=
  file=$(initramfs_of "$release") && written=$(stat -c %Y "$file")
  # Times only make suspicious (a restored machine has new ones everywhere): then, and only then, is looked inside.
  nouveau=
  if [ -n "$written" ] && { [ -z "$blacklist" ] || [ "$written" -lt "$blacklist" ]; }; then
    case "$records" in
      *"$NL$release $written$NL"*) ;;
      *) if inside=$(list_initramfs "$file"); then
          nouveau=no; ! holds_nouveau "$inside" || nouveau=yes
        else nouveau=unknown; fi;;
    esac
  fi
  of_module "$release"
  compiler "$release"
  told="headers=$headers initramfs=$written module=$version signer=$signer gcc=$gcc nouveau=$nouveau base=$base"
  echo "kernel=$release $told"
done
[ ! -L /vmlinuz ] || echo "link=$(readlink -f /vmlinuz)"
for config in /boot/grub/grub.cfg /boot/grub2/grub.cfg; do
  [ -r "$config" ] || continue
  lines=$(grep -E '^[[:space:]]*(menuentry |submenu |linux(16|efi)?[[:space:]]|set default=|}[[:space:]]*$)' "$config")
  echo "grub=$(printf '%s\n' "$lines" | to_base64 "$config")"
  environment=${config%.cfg}env
  [ ! -r "$environment" ] || echo "grubenv=$(grep -E '^(saved|next)_entry=' "$environment" | to_base64 "$environment")"
  break
done
for entry in /var/lib/dkms/nvidia*/*; do
  [ -d "$entry" ] || continue
  module=${entry%/*}; module=${module##*/}; version=${entry##*/}
  case "$module$version" in *kernel-*|*[!A-Za-z0-9._+~-]*) continue;; esac
  [ ! -e "$entry/source" ] || echo "dkms=$module $version - added"
  for built in "$entry"/*/*/module; do
    [ -d "$built" ] || continue
    release=${built#"$entry"/}; release=${release%%/*}; state=built
    for file in "$built"/*.ko*; do
      name=${file##*/}
      [ -z "$(find "/lib/modules/$release" -name "${name%%.ko*}.ko*" -path '*/updates/*' -print -quit)" ] ||
        state=installed
      break
    done
    echo "dkms=$module $version $release $state"
  done
done
firmware=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
if [ -r "$firmware" ]; then words "$(od -An -t u1 -j 4 -N 1 "$firmware")"; echo "secure_boot=$WORDS"; fi
for key in /var/lib/dkms/mok.pub /var/lib/shim-signed/mok/MOK.der; do
  if ! [ -r "$key" ] || ! command -v mokutil > /dev/null; then continue; fi
  case "$(mokutil --test-key "$key")" in *'already enrolled'*) echo key_enrolled=yes; break;; esac
done
if command -v gcc > /dev/null; then said=$(gcc -dumpversion); echo "gcc=${said%%.*}"; fi
for tool in gcc make dkms; do if command -v "$tool" > /dev/null; then echo "tool=$tool"; fi; done
