# Asks dpkg once for all that parts of a question want to know of packages. Takes GLOBS of the driver's, of kernels' and
# of the container toolkit's packages. Sets $PACKAGES and $ARCHITECTURE (facts/packages.py).
#
# shellcheck disable=SC2034  # The parts read them.

MANAGER=apt
set -f
# shellcheck disable=SC2086  # They are words, and no names of files.
found=$(dpkg-query -W -f '${db:Status-Status} ${db:Status-Want} ${Package} ${Version} ${Architecture}\n' dpkg $GLOBS)
IFS=$NL
for line in $found; do
  case "$line" in 'installed '*) ;; *) continue;; esac
  line=${line#installed }
  case "$line" in *' dpkg '*) ARCHITECTURE=${line##* }; continue;; esac
  case "$line" in 'hold '*) want=hold;; *) want=install;; esac
  line=${line#* }
  PACKAGES=$PACKAGES$want\ ${line% *}$NL
done
unset IFS; set +f
