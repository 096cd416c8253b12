"""Shell text that installs the headers of kernel $release, by the version of the kernel's own package."""

from __future__ import annotations

from operations.families.dnf import DNF_RUN
from operations.families.dnf import REFRESH as DNF_REFRESH
from operations.families.zypper_shell import REFRESH as ZYPPER_REFRESH
from operations.families.zypper_shell import ZYPP

# kernel-core has kernel-devel, kernel-rt-core kernel-rt-devel, kernel-default-base kernel-default-devel.
_INSTALL = r"""
owner=''
for image in "/lib/modules/$release/vmlinuz" "/usr/lib/modules/$release/vmlinuz" "/boot/vmlinuz-$release"; do
  owner=$(rpm -qf --qf '%{NAME} %{VERSION}-%{RELEASE}\n' "$image" 2>/dev/null | grep -v ' is not owned by ' | head -n 1)
  case "$owner" in kernel*' '*) break;; *) owner='';; esac
done
[ -n "$owner" ] || {
  echo "gpunode: no package of rpm's brought kernel $release, so that none with its headers is known; nothing was" \
    "installed. Put them to /lib/modules/$release/build, or boot a kernel of the distribution's" >&2; exit 1; }
name=${owner%% *}; version=${owner##* }
name=${name%-core}; name=${name%-base}; name=$name-devel
add "$name" "$version" || {
  echo "gpunode: $name $version, the headers of kernel $release, is not to be had: repositories drop those of older" \
    "kernels; nothing else was changed" >&2
  echo "gpunode: remedy: upgrade the kernel ($upgrade), reboot and run again, or install $name-$version by hand" >&2
  exit 1; }
[ -e "/lib/modules/$release/build/Makefile" ] || {
  echo "gpunode: $name $version is installed, and /lib/modules/$release/build leads to no headers" >&2; exit 1; }
"""

# What is locked is locked against others: it is by its own kernel's version that it comes.
BY_DNF = f"""{DNF_RUN}{DNF_REFRESH}
add() {{ refresh ""; dnf_run --disableplugin=versionlock install "$1-$2"; }}
upgrade="dnf upgrade"
{_INSTALL}"""
BY_ZYPPER = f"""{ZYPP}{ZYPPER_REFRESH}
add() {{ refresh ""; zypp install --no-recommends --oldpackage "$1=$2"; }}
upgrade="zypper update"
{_INSTALL}"""

__all__ = ["BY_DNF", "BY_ZYPPER"]
