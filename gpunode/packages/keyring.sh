# Functions; it prints nothing.
#
# primary_keys FILE... prints the fingerprint of each primary key, one a line. Subkeys are left out: who trusts a key
# trusts them with it, and they change. Who only asks leaves no ~/.gnupg behind, nor a lock in it.

primary_keys() (
  primary=; set -f
  IFS='
'
  set -- --lock-never --no-keyring --trust-model always --batch --show-keys --with-colons "$@"
  for line in $(gpg "$@" 2> /dev/null); do
    case "$line" in
      pub:*) primary=yes;;
      fpr:*)
        line=${line#fpr:*:*:*:*:*:*:*:*:}
        [ -z "$primary" ] || printf '%s\n' "${line%%:*}"
        primary=;;
    esac
  done
)
