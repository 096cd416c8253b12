# The driver's packages by rpm and zypper, behind zypper.sh, whose LOCKS is zypper's file of locks. Takes OURS, the file
# with the names of ours. Prints rpm=STATUS, zypper=yes, package=WANT NAME VERSION, locks=BASE64, ours=BASE64.

rpm -qa >/dev/null; echo "rpm=$?"
echo zypper=yes
of_driver | sed 's/^/package=/'
# shellcheck disable=SC2153
[ -s "$LOCKS" ] && echo "locks=$(file_base64 "$LOCKS")"
[ -s "$OURS" ] && echo "ours=$(file_base64 "$OURS")"
