# Installs packages again that own lost files. Takes patterns of paths, on top of a family's functions: `owned` prints
# PACKAGE PATH of each installed file that matches a pattern, `again PACKAGE...` installs packages again at their
# version. A pattern that is a path itself is of a program that may be there and not work.

# A library without content loads nowhere; other files may be empty.
lost() { [ ! -e "$1" ] || case "$1" in *.so*) [ ! -s "$1" ];; *) false;; esac; }
state=$(for pattern in "$@"; do
  owned "$pattern" | while read -r package path; do
    if lost "$path"; then echo "lost $package $path"
    elif [ "$path" = "$pattern" ]; then echo "there $package $path"; fi
  done
done)
names=$(printf '%s\n' "$state" | cut -d ' ' -f 2 | sort -u | paste -s -d ' ' -)
[ -n "$names" ] || {
  echo "gpunode: cause: no installed package owns a lost file of $*" >&2
  echo "gpunode: remedy: look for what took its place (\`command -v ${1##*/}\` on the node), and run again" >&2
  exit 1
}
code=0
# shellcheck disable=SC2086  # They are words.
again $names || code=$?
# apt succeeds where it cannot fetch a package. What dpkg was told to leave out never comes.
left=$(printf '%s\n' "$state" | while read -r was _ path; do
  case "$was" in there) ;; *) if lost "$path"; then echo "$path"; else echo back; fi;; esac
done | sort -u)
if [ "$code" = 0 ] && { [ -z "$left" ] || printf '%s\n' "$left" | grep -qx back; }; then exit 0; fi
left=$(printf '%s\n' "$left" | grep -vx back | head -n 3 | paste -s -d ' ' -)
echo "gpunode: cause: $names cannot be installed again${left:+, and lack $left}" >&2
echo "gpunode: remedy: have a repository offer them at the installed version, or set another version; run again" >&2
exit 1
