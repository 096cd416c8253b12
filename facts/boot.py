"""What boots next: kernels, headers, modules, initial file systems, secure boot."""

from __future__ import annotations

from facts.base import NodeFact
from facts.initramfs import INITRAMFS, LOOKED_INTO
from gpunode.boot import Boot as Reading
from gpunode.boot import parse_boot


class Boot(NodeFact[Reading]):
    """Read what decides whether the next boot has an NVIDIA module; nothing is unpacked and nothing is built.

    DKMS' own tree is read instead of asking dkms, which takes a second on a slow node. An initramfs is made from
    /etc/modprobe.d: one older than every blacklist of nouveau is looked into, once (operations/initramfs.py keeps a
    record). A blacklist's time is that of its inode, since a package's file bears the day on which it was built.
    """

    probe = (
        INITRAMFS
        + f"looked_into={LOOKED_INTO}"
        + r"""
echo "running=$(uname -r)"
base=$(cat "/usr/lib/modules/$(uname -r)/pkgbase") && echo "base=$base"
blacklist=; blacklisted=
for file in /etc/modprobe.d/*.conf /usr/lib/modprobe.d/*.conf /lib/modprobe.d/*.conf; do
  [ -e "$file" ] && grep -qE '^[[:space:]]*(blacklist|install|alias)[[:space:]]+nouveau' "$file" || continue
  time=$(stat -c %Z "$file")
  [ -n "$blacklist" ] && [ "$blacklist" -le "$time" ] || blacklist=$time
  blacklisted=$(printf '%s\n%s' "${file##*/}" "$blacklisted")
done
[ -n "$blacklist" ] && echo "blacklist=$blacklist"
for image in /boot/vmlinuz-*; do
  release=${image#/boot/vmlinuz-}
  [ -e "$image" ] || continue
  # A kernel to rescue by is for any machine, and made anew by nobody.
  case "$release" in *[!A-Za-z0-9._+~-]*|0-rescue-*) continue;; esac
  # Arch's are named after their package, and say in their folder which one that is.
  base=
  for pkgbase in /usr/lib/modules/*/pkgbase; do
    [ -r "$pkgbase" ] && [ "$(cat "$pkgbase")" = "$release" ] || continue
    base=$release; release=${pkgbase%/pkgbase}; release=${release##*/}; break
  done
  headers=no; [ -e "/lib/modules/$release/build/Makefile" ] && headers=yes
  written=
  file=$(initramfs_of "$release") && written=$(stat -c %Y "$file")
  # Times only make suspicious (a restored machine has new ones everywhere): then, and only then, is looked inside.
  nouveau=
  if [ -n "$written" ] && { [ -z "$blacklist" ] || [ "$written" -lt "$blacklist" ]; } &&
    ! grep -qxF "$release $written" "$looked_into"; then
    if inside=$(list_initramfs "$file"); then
      nouveau=no
      printf '%s\n' "$inside" | grep -q '/nouveau\.ko' &&
        ! printf '%s\n' "$inside" | sed 's|.*/||' | grep -qxF "${blacklisted:-/}" && nouveau=yes
    else nouveau=unknown; fi
  fi
  version=; signer=
  for module in nvidia nvidia-current nvidia-current-open; do
    version=$(modinfo -k "$release" -F version "$module") && [ -n "$version" ] && {
      signer=$(modinfo -k "$release" -F signer "$module" | tr ' ' _); break; }
  done
  gcc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT=.*gcc.* \([0-9][0-9]*\)\.[0-9.]*"$/\1/p' "/boot/config-$release")
  told="headers=$headers initramfs=$written module=$version signer=$signer gcc=$gcc nouveau=$nouveau base=$base"
  echo "kernel=$release $told"
done
[ -L /vmlinuz ] && echo "link=$(readlink -f /vmlinuz)"
for config in /boot/grub/grub.cfg /boot/grub2/grub.cfg; do
  [ -r "$config" ] || continue
  lines=$(grep -E '^[[:space:]]*(menuentry |submenu |linux(16|efi)?[[:space:]]|set default=|}[[:space:]]*$)' "$config")
  echo "grub=$(printf '%s\n' "$lines" | base64 -w0)"
  for environment in "${config%.cfg}env"; do
    [ -r "$environment" ] && echo "grubenv=$(grep -E '^(saved|next)_entry=' "$environment" | base64 -w0)"
  done
  break
done
for entry in /var/lib/dkms/nvidia*/*; do
  [ -d "$entry" ] || continue
  module=${entry%/*}; module=${module##*/}; version=${entry##*/}
  case "$module$version" in *kernel-*|*[!A-Za-z0-9._+~-]*) continue;; esac
  [ -e "$entry/source" ] && echo "dkms=$module $version - added"
  for built in "$entry"/*/*/module; do
    [ -d "$built" ] || continue
    release=${built#"$entry"/}; release=${release%%/*}; state=built
    for file in "$built"/*.ko*; do
      name=${file##*/}
      [ -n "$(find "/lib/modules/$release" -name "${name%%.ko*}.ko*" -path '*/updates/*' -print -quit)" ] &&
        state=installed
      break
    done
    echo "dkms=$module $version $release $state"
  done
done
firmware=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
[ -r "$firmware" ] && echo "secure_boot=$(od -An -t u1 -j 4 -N 1 "$firmware" | tr -d ' ')"
for key in /var/lib/dkms/mok.pub /var/lib/shim-signed/mok/MOK.der; do
  [ -r "$key" ] && command -v mokutil >/dev/null && mokutil --test-key "$key" | grep -q 'already enrolled' &&
    { echo key_enrolled=yes; break; }
done
command -v gcc >/dev/null && echo "gcc=$(gcc -dumpversion | cut -d. -f1)"
for tool in gcc make dkms; do command -v "$tool" >/dev/null && echo "tool=$tool"; done
"""
    )
    parse = staticmethod(parse_boot)
