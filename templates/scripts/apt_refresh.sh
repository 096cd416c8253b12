# A function, on top of apt_get.sh, apt_lists.sh and index_date.sh.
# refresh NAME reads all lists, and ends the script where that of gpunode's repository NAME could not be refreshed: apt
# says so, goes on with the lists of before, and exits 0.

# shellcheck disable=SC2154  # set by whoever sends it

# shellcheck disable=SC2013,SC2140
refresh() {
  read_lists apt_get || {
    echo "gpunode: the package lists could not be refreshed; nothing was installed" >&2; exit 1; }
  for uri in $(sed -n 's/^URIs: //p' "/etc/apt/sources.list.d/gpunode-$1.sources" 2>/dev/null |
      sed "s/[$](ARCH)/$(dpkg --print-architecture)/g"); do
    case "$said" in *"GPG error: ${uri%/}"["/ "]*|*"Failed to fetch ${uri%/}"["/ "]*)
      # What apt reports of other repositories, which may fail, is not the cause.
      printf '%s\n' "$said" | grep -F -e "${uri%/}/" -e "${uri%/} " >&2
      echo "gpunode: the list of the repository $1 could not be refreshed; nothing was installed" >&2; exit 1;;
    esac
  done
  not_older "$1"
}
