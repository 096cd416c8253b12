"""How rpm and dnf are asked: what is installed and locked, what the repositories have, what dnf would do."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from facts.families.rpm import VERSION, RpmRepository
from gpunode.driver_packages import COMPANIONS, FOREIGN, OWN, Offers, Simulation
from gpunode.families.dnf import LOCKLIST, nevra, parse_offers, parse_simulation
from gpunode.probe import Probe, shell_text
from gpunode.runtime_packages import RUNTIMES
from gpunode.toolkit.state import NAMES as TOOLKIT

# The functions of that file, `of_driver` above all.
DRIVER_PACKAGES = shell_text(
    "families/dnf", LOCKLIST=LOCKLIST, EVR=VERSION, OWN=OWN, FOREIGN=FOREIGN, COMPANIONS=" ".join(COMPANIONS),
    BESIDE=f"{TOOLKIT}|^({'|'.join(RUNTIMES).replace('.', '[.]')})$",
)  # fmt: skip

# A foreign repository that cannot be read is passed over; ours is read by itself before, and must answer.
SKIPPING = "'--setopt=*.skip_if_unavailable=1'"

DRIVER_STATE = rf"""
rpm -qa >/dev/null; echo "rpm=$?"
{DRIVER_PACKAGES.strip()}
of_driver | sed 's/^/package=/'
locking && {{ echo locking=yes; [ -s {LOCKLIST} ] && echo "locklist=$(base64 -w0 {LOCKLIST})"; }}
"""


# The node's own choice of streams stays: files are bound over it in a mount namespace that ends with the probe. What
# is asked reads the metadata as they are.
_IN_STREAM = r"""
folder=$(mktemp -d) || exit 0; trap 'rm -rf "$folder"' EXIT
mkdir "$folder/modules.d"; cp -a /etc/dnf/modules.d/. "$folder/modules.d/" 2>/dev/null
module=${stream%%:*}
if [ -n "$stream" ] && dnf -q -C '--setopt=*.skip_if_unavailable=1' module list "$module" >/dev/null 2>&1; then
  printf '[%s]\nname=%s\nstream=%s\nprofiles=\nstate=enabled\n' "$module" "$module" "${stream#*:}" \
    > "$folder/modules.d/$module.module"
fi
in_stream() {
  [ -d /etc/dnf/modules.d ] || { "$@"; return; }
  unshare --mount sh -c 'mount --bind "$1" /etc/dnf/modules.d && shift && exec "$@"' sh "$folder/modules.d" "$@"
}
"""


# What a package of the driver needs may be had at several versions, where no module stream tells branches apart, and
# within one. EVERY_VERSION prints all that the repositories have, OTHER_VERSIONS makes of it what dnf is to leave out,
# so that everything comes at $upstream: of each repository, since what is installed and left out could not be replaced.
EVERY_VERSION = (
    f"dnf -q -C {SKIPPING} --disableplugin=versionlock repoquery --showduplicates "
    "--qf '%{name} %{version} %{epoch}:%{version}-%{release}' "
    "'nvidia-*' 'libnvidia-*' 'libnvsdm*' 'kmod-nvidia-*' 'cuda-drivers*'"
)
OTHER_VERSIONS = rf"""awk -v own='{OWN}' -v foreign='{FOREIGN}' -v upstream="$upstream" '
  $1 ~ own && $1 !~ foreign && $2 ~ /^[0-9][0-9][0-9][.][0-9]+([.][0-9]+)?$/ && $2 != upstream {{
    print "*nvidia*-" $3; print "libnvsdm*-" $3; print "cuda-drivers*-" $3}}' | sort -u | paste -s -d , -"""


class DnfOffers(NodeFact[Offers]):
    """Read which versions of packages the repositories have, by the metadata as they are."""

    parse = staticmethod(parse_offers)

    def command(self, names: list[str], stream: str = "") -> Probe:  # type: ignore[override]
        """Return the probe for `names`, as if the module stream (MODULE:STREAM) were enabled."""
        asked = " ".join(shlex.quote(name) for name in names)
        return probe_command(
            f"stream={shlex.quote(stream)}{_IN_STREAM}"
            f"offers=$(in_stream dnf -q -C {SKIPPING} --disableplugin=versionlock repoquery --showduplicates "
            f"--qf 'available=%{{name}} %{{epoch}}:%{{version}}-%{{release}}' {asked}); echo \"dnf=$?\"\n"
            "printf '%s\\n' \"$offers\" | grep ^available="
        )


class DnfSimulation(NodeFact[Simulation]):
    """Read what dnf would do; it is told to answer no, and changes nothing."""

    parse = staticmethod(parse_simulation)

    def command(  # type: ignore[override]
        self, coming: dict[str, str], going: list[str], stream: str = "", upstream: str = ""
    ) -> Probe:
        """Return the probe for installing `coming` (name -> version) and removing `going`, in a module stream.

        Of the driver's packages only those of the version `upstream` are in dnf's sight, where it is said.
        """
        lines = [f"install {nevra(name, version)}" for name, version in coming.items()]
        lines += [*(f"remove {name}" for name in going), "run"]
        asked = " ".join(shlex.quote(line) for line in lines)
        wanted = " ".join(shlex.quote(f"{name} {version}") for name, version in coming.items())
        # One transaction for both, with the options of the change: what is to go may be what others still need.
        return probe_command(
            f"stream={shlex.quote(stream)}{_IN_STREAM}"
            f"printf '%s\\n' {asked} > \"$folder/asked\"\n"
            f"upstream={shlex.quote(upstream)}; others=\n"
            f'[ -z "$upstream" ] || others=$(in_stream {EVERY_VERSION} | {OTHER_VERSIONS})\n'
            f"said=$(in_stream dnf -C {SKIPPING} --assumeno --disableplugin=versionlock --allowerasing "
            '${others:+"--setopt=*.excludepkgs=$others"} '
            '--setopt=clean_requirements_on_remove=False shell "$folder/asked" 2>&1); echo "status=$?"\n'
            "printf '%s\\n' \"$said\" | sed 's/^/line=/'\n"
            f'for each in {wanted}; do echo "asked=$each"; done\n'
            f"rpm -qa --qf 'installed=%{{NAME}} {VERSION}\\n' | grep -v '^installed=gpg-pubkey '"
        )


class DnfRepository(RpmRepository):
    """Read how a repository of ours is trusted, and other .repo files of dnf's that mention its address."""

    FOLDER = "/etc/yum.repos.d"
