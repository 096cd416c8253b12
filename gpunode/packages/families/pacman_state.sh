# The driver's packages by pacman, behind pacman_lock.sh and pacman.sh. Takes CONFIGURATION, pacman's, and IGNORED, our
# file.
# Prints pacman=STATUS, lock=none|held|stale, package=WANT NAME VERSION, configuration=BASE64, ignored=BASE64.

pacman -Q pacman >/dev/null; echo "pacman=$?"
echo "lock=$(lock_state)"
of_driver | sed 's/^/package=/'
echo "configuration=$(file_base64 "$CONFIGURATION")"
[ -f "$IGNORED" ] && echo "ignored=$(file_base64 "$IGNORED")"
