# Prints the services that use files which a package replaced, as the node's own tool for that names them; nothing
# where no such tool is installed, or where no package changed within MINUTES.

databases='/var/lib/dpkg/status /var/lib/rpm /usr/lib/sysimage/rpm /var/lib/pacman/local'
# shellcheck disable=SC2086  # They are words.
[ -n "$(find $databases -maxdepth 1 -mmin "-$MINUTES" 2>/dev/null | head -n 1)" ] || exit 0
if command -v needrestart > /dev/null; then set -- needrestart -b -l -r l
elif command -v zypper > /dev/null; then set -- zypper -n ps -sss
elif command -v dnf5 > /dev/null; then set -- dnf5 -q --disablerepo='*' needs-restarting -s
elif command -v dnf > /dev/null; then set -- dnf -q --disablerepo='*' needs-restarting -s
else exit 0; fi
code=0; said=$(timeout -k 2 60 "$@" 2>&1) || code=$?
# zypper has the command by lsof, dnf by a plugin.
case "$said" in *'No such command'*|*'Unknown argument'*|*"install package 'lsof'"*) exit 0;; esac
# 102 and 103 of zypper: a restart is due. dnf 5 exits with 1 where a service has to be restarted.
case "$1 $code" in *' 0'|'zypper 102'|'zypper 103') ;; 'dnf5 1') [ -n "$said" ] || code=;; *) code=;; esac
[ -n "$code" ] || { echo "unread=$* gives no answer"; exit 0; }
printf '%s\n' "$said" | if [ "$1" = needrestart ]; then sed -n 's/^NEEDRESTART-SVC: */service=/p'
else sed -n '/^[A-Za-z0-9@:_.\\-]\{1,\}$/s/^/service=/p'; fi
