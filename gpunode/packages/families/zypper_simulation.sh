# What zypper would do, in a dry run, behind zypper.sh, whose LOCKS is zypper's file of locks.
# With the options of the change, which lifts the driver's locks: a file without them is bound over zypper's own in a
# mount namespace that ends with the probe. Takes COMING, lines NAME VERSION, GOING, lines NAME, and EVR, rpm's format
# of one.
# Prints status=STATUS, xml=BASE64, asked=NAME VERSION, installed=NAME VERSION.

folder=$(mktemp -d) || exit 0; trap 'rm -rf "$folder"' EXIT; trap 'exit 1' HUP INT TERM PIPE
names=$(of_driver | cut -d" " -f2 | grep -v ^kernel; printf '%s\n%s\n' "$COMING" "$GOING" | cut -d" " -f1)
# shellcheck disable=SC2086
[ -f "$LOCKS" ] && unlocking $names > "$folder/locks"
# shellcheck disable=SC2016
lifted() {
  [ -f "$folder/locks" ] || { "$@"; return; }
  unshare --mount sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh "$folder/locks" "$LOCKS" "$@"
}
set -f; IFS=$NL; set --
for each in $COMING; do set -- "$@" "${each%% *}=${each#* }"; done
for each in $GOING; do rpm -q "$each" >/dev/null && set -- "$@" "!$each"; done
unset IFS; set +f
said=$(lifted zypper -n --xmlout --no-refresh install --dry-run --details --no-recommends \
  --auto-agree-with-licenses --oldpackage --force-resolution "$@" 2>/dev/null)
echo "status=$?"
echo "xml=$(printf '%s' "$said" | to_base64 zypper)"
[ -z "$COMING" ] || printf '%s\n' "$COMING" | sed 's/^/asked=/'
rpm -qa --qf "installed=%{NAME} $EVR\\n" | grep -v '^installed=gpg-pubkey '
