# Prints what apt is told beside gpunode's own sources: lists that name NVIDIA or CUDA, retired keys among the
# world-trusted ones, and the origins of the archives that it reads; and of pacman how far it trusts its repositories.
# Of every package manager: error=WORDS where it cannot read its configuration or sources.
# Takes RETIRED, ids of keys; asks for the node's packages (facts/packages.py), and the functions of
# gpunode/packages/keyring.sh.

if command -v apt-get > /dev/null; then
  # Without lists and status apt reads sources, preferences and configuration alone, and writes no cache. With an
  # architecture it asks dpkg for none, which takes as long.
  said=$(apt-cache ${ARCHITECTURE:+-o APT::Architectures::="$ARCHITECTURE"} -o Dir::State::lists=/nonexistent \
    -o Dir::State::status=/dev/null -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= policy 2>&1 > /dev/null) ||
    printed error "${said:-apt-cache: exit code $?}"
  echo "architecture=${ARCHITECTURE:-$(dpkg --print-architecture)}"
  # Of the lists those count whose source is there: others stay until the next update. apt-get would tell, too, and
  # write its cache anew where that is outdated.
  set --
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$file" ] || set -- "$@" "$file"
  done
  awk '
    FILENAME !~ /Release$/ {
      if (/^[ \t]*#/) next
      for (i = 1; i <= NF; i++) if ($i ~ /^[a-z+]+:\//) {
        place = $i; sub(/^[a-z+]+:(\/\/([^\/@]*@)?)?/, "", place); sub(/\/+$/, "", place)
        gsub(/_/, "%5f", place); gsub(/\//, "_", place); places[place "_"]
      }
      next
    }
    FNR == 1 {
      name = FILENAME; sub(/.*\//, "", name); known = 0
      for (place in places) if (index(name, place) == 1) known = 1
    }
    !known || /^(MD5Sum|SHA1|SHA256|SHA512):/ { nextfile }
    /^Origin:/ { sub(/^Origin:[ \t]*/, ""); sub(/[ \t]+$/, ""); print "origin=" $0; nextfile }
  ' "$@" /dev/null /var/lib/apt/lists/*Release
  set --
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    case "${file##*/}" in gpunode-*|*[!A-Za-z0-9_.-]*) ;; *) set -- "$@" "$file";; esac
  done
  if [ "$#" -gt 0 ]; then
    # shellcheck disable=SC2013  # These names hold no blank.
    for file in $(grep -liE 'nvidia|cuda|graphics-drivers' "$@"); do echo "source=$file $(file_base64 "$file")"; done
  fi
  set --
  for file in /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d/*.gpg /etc/apt/trusted.gpg.d/*.asc; do
    [ -f "$file" ] || continue
    case "${file##*/}" in *[!A-Za-z0-9_.-]*) ;; *) set -- "$@" "$file";; esac
  done
  # One gpg for all files: most nodes trust no such key.
  known=
  if [ "$#" -gt 0 ]; then
    for key in $(primary_keys "$@"); do
      for id in $RETIRED; do case "$key" in *"$id") known=yes;; esac; done
    done
  fi
  [ -z "$known" ] || for file in "$@"; do
    for key in $(primary_keys "$file"); do echo "trusted=$key $file"; done
  done
elif [ -s /var/lib/pacman/local/ALPM_DB_VERSION ]; then
  repositories=$(pacman-conf --repo-list 2>&1) ||
    { printed error "${repositories:-pacman-conf: exit code $?}"; repositories=; }
  for repository in $repositories; do
    # It says nothing of one that goes by [options].
    words "$(pacman-conf -r "$repository" SigLevel)"; [ -n "$WORDS" ] || words "$(pacman-conf SigLevel)"
    printf 'siglevel=%s\n' "$repository $WORDS"
  done
else
  # What dnf, dnf 5 and zypper all refuse; asking them would cost more than all else of this part. Line ends and the
  # mark of a Windows editor zypper alone refuses.
  set -- /dev/null
  for file in /etc/dnf/dnf.conf /etc/yum.repos.d/*.repo /etc/zypp/repos.d/*.repo; do
    [ ! -f "$file" ] || set -- "$@" "$file"
  done
  awk 'FNR == 1 {section = 0; if (FILENAME !~ /zypp/) sub(/^\357\273\277/, "")}
    FILENAME !~ /zypp/ {sub(/\r$/, "")}
    /^[ \t]*([#;]|$)/ || (section && (/^[ \t]/ || /^[^[].*=/)) {next}
    /^\[[^]]+\]/ {section = 1; next}
    {print "error=" FILENAME ", line " FNR ": neither [SECTION] nor KEY=VALUE of a section"; nextfile}' "$@"
fi
