# Finishes what dpkg was killed at (by a reboot, say): apt refuses everything until then. On top of apt_get.sh.

# shellcheck disable=SC2034  # read by what stands beside it

tries=0
until said=$(dpkg --force-confold --configure -a 2>&1 </dev/null); do
  case "$said" in *"lock was locked by another process"*) ! time_left || continue;; esac
  break
done
unlocked
# What a change of the driver was cut off at is finished at its own versions: the newest may be of another branch, and
# what comes of it nobody asked for.
pinned=/var/lib/gpunode/transactions/driver/preferences
[ -f "$pinned" ] || pinned=/etc/apt/preferences
apt_get -o Dir::Etc::Preferences="$pinned" --fix-broken install || { echo "$said" >&2
  echo "gpunode: dpkg was interrupted, and what it began cannot be finished" >&2
  echo "gpunode: remedy: finish it by hand (\`dpkg --audit\` and \`dpkg --configure -a\` on the node name what is" \
    "broken)," \
    "and run again" >&2
  exit 1; }
