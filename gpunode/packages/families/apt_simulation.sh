# What apt would do at `install ARGUMENT...`; it only simulates. On top of apt_only.sh.
# Takes PIN, preferences before the node's own; OWN and FOREIGN, what is the driver's and what of that is not.
# Prints status=STATUS and line=WORDS.

# shellcheck disable=SC2154  # $folder is apt_only.sh's.
printf '%s\n' "$PIN" > "$folder/preferences"; cat /etc/apt/preferences >> "$folder/preferences"
# A copy of dpkg's state without the driver's holds, which the change itself would lift.
awk -v own="$OWN" -v foreign="$FOREIGN" '/^Package: /{mine = $2 ~ own && $2 !~ foreign}
  mine && /^Status: hold /{sub(/hold/, "install")} {print}' /var/lib/dpkg/status > "$folder/status"
# shellcheck disable=SC2086,SC2154  # $only holds options, of apt_only.sh.
simulated() {
  apt-get -s -q -y -o Dir::Etc::Preferences="$folder/preferences" -o Dir::State::status="$folder/status" \
    -o Dir::Cache::pkgcache= $only install --no-install-recommends --allow-downgrades --allow-change-held-packages \
    "$@" 2>&1
}
said=$(simulated "$@"); status=$?; echo "status=$status"
# apt tells what the packages need that were asked for, and not why that is not to be had.
deeper=$said; depth=0
while [ "$status" -ne 0 ] && [ "$depth" -lt 4 ]; do
  needed=$(printf '%s\n' "$deeper" | sed -n 's/.*Depends: \([a-z0-9.+-]*\) (= \([^ )]*\)) but .*/\1=\2/p' |
    head -n 1); [ -n "$needed" ] || break
  deeper=$(simulated "$needed"); said="$said$NL$deeper"; depth=$((depth + 1))
done
printf '%s\n' "$said" | grep -E '^(Inst|Remv|Purg|E:|W:) |Depends: .* but ' | sed 's/^/line=/'
