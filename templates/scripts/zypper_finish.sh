# Ends an interrupted change of packages: it leaves the new version beside the old one, and the one that came last
# stays.
# It takes $own and $foreign, patterns of the driver's packages and of those that only look so.

# shellcheck disable=SC2154  # set by whoever sends it

rpm -qa --qf '%{INSTALLTIME} %{NAME} %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}\n' |
  awk -v own="$own" -v foreign="$foreign" '$2 ~ own && $2 !~ foreign && $2 !~ /-kmp-/' | sort -rn |
  awk 'seen[$2]++ {print $3}' | while read -r old; do
    rpm -e --nodeps "$old" || {
      echo "gpunode: a change of packages was interrupted, and $old of before it cannot be removed" >&2
      echo "gpunode: remedy: remove it by hand (\`zypper verify\` on the node names what is broken), and run again" >&2
      exit 1; }
  done
