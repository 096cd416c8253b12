"""The NVIDIA container toolkit."""

from __future__ import annotations

from facts.base import NodeFact
from facts.families import by_manager
from facts.families.dnf import DRIVER_PACKAGES
from gpunode.families.dnf import LOCKLIST
from gpunode.toolkit import ContainerToolkit as Reading
from gpunode.toolkit import parse_toolkit
from gpunode.toolkit.configuration import PATH
from gpunode.toolkit.state import PACKAGES

HOLD = "/etc/apt/preferences.d/gpunode-toolkit"
LINK_RULE = "/etc/udev/rules.d/71-gpunode-nvidia-dev-char.rules"
# The first line of a CDI specification that gpunode had made: no program writes one of its own.
CDI_MARK = "# Written by gpunode with nvidia-ctk; changes are overwritten. toolkit.cdi = 'off' removes this file."
_NAMES = " ".join(PACKAGES)

_APT = rf"""
dpkg-query -W -f '${{db:Status-Status}} ${{db:Status-Want}} ${{Package}} ${{Version}}\n' 'nvidia-container-*' \
  'libnvidia-container*' 'nvidia-docker*' |
  awk '$1 == "installed" {{print "package=" $3 " " $4; if ($2 == "hold") print "held=" $3}}'
[ -f {HOLD} ] && echo "hold_text=$(base64 -w0 {HOLD})"
"""

_BY_RPM = r"""
rpm -qa --qf 'package=%{NAME} %{VERSION}-%{RELEASE}\n' \
  'nvidia-container-*' 'libnvidia-container*' 'nvidia-docker*'
"""

_DNF = rf"""{_BY_RPM}
{DRIVER_PACKAGES.strip()}
if locking; then
  echo locking=yes
  if [ -s {LOCKLIST} ]; then
    echo "hold_text=$(base64 -w0 {LOCKLIST})"
    rpm -q --qf '%{{NAME}} %{{NAME}}-%{{EPOCHNUM}}:%{{VERSION}}-%{{RELEASE}}.%{{ARCH}}\n' {_NAMES} |
      grep -v ' is not installed' | while read -r name nevra; do lock_of "$nevra" && echo "held=$name"; done
  fi
fi
"""

_PACMAN = r"""
echo names=arch
pacman -Q | sed -n -E 's/^(nvidia-container-|libnvidia-container|nvidia-docker)/package=&/p'
"""


class ContainerToolkit(NodeFact[Reading]):
    """Read the toolkit's packages and configuration, where its runtime is, CDI specifications and links of devices.

    A specification names the libraries that it hands in by their version: libcuda's is the driver that it is of.
    """

    probe = (
        by_manager(apt=_APT, dnf=_DNF, zypper=_BY_RPM, pacman=_PACMAN)
        + rf"""
command -v nvidia-ctk >/dev/null && echo "ctk=$(nvidia-ctk --version | head -n 1)"
echo "runtime=$(command -v nvidia-container-runtime)"
[ -f {PATH} ] && echo "config=$(base64 -w0 {PATH})"
for file in /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json; do
  case "$file" in *[[:space:]]*) continue;; esac
  [ -f "$file" ] && grep -qE '"?kind"?: *"?nvidia\.com/gpu' "$file" || continue
  version=$(grep -oE 'libcuda\.so\.[0-9]{{3}}\.[0-9.]*[0-9]' "$file" | head -n 1)
  ours=foreign; [ "$(head -n 1 "$file")" = "{CDI_MARK}" ] && ours=ours
  version=${{version#libcuda.so.}}; echo "cdi=$file ${{version:--}} $ours"
done
for folder in /etc /run /usr/lib /lib; do
  [ -e "$folder/systemd/system/nvidia-cdi-refresh.service" ] || continue
  echo "refresh=$(systemctl show -p UnitFileState --value nvidia-cdi-refresh.path)"; break
done
for device in /dev/nvidia* /dev/nvidia-caps/*; do
  [ -c "$device" ] || continue
  link=/dev/char/$((0x$(stat -c %t "$device"))):$((0x$(stat -c %T "$device")))
  [ "$device" -ef "$link" ] || echo "unlinked=$device"
done
[ -f {LINK_RULE} ] && echo link_rule=yes
"""
    )
    parse = staticmethod(parse_toolkit)
