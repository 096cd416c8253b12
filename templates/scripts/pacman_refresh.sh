# A function, on top of gpunode/packages/families/pacman_lock.sh.
# refresh reads the repositories into $DATABASE: beside the node's own lists, which stay as old as the system is.

refresh() {
  install -d -m 755 "${DATABASE%/*}" "$DATABASE" "$DATABASE"/sync
  ln -sfn "$(pacman-conf DBPath | sed 's|/*$||')/local" "$DATABASE"/local
  if [ -z "$(lock_holder "$DATABASE"/db.lck)" ]; then rm -f "$DATABASE"/db.lck; fi
  pacman --noconfirm --noprogressbar -Sy --dbpath "$DATABASE" --logfile /dev/null > /dev/null < /dev/null || {
    echo "gpunode: the repositories could not be read; nothing was installed" >&2
    exit 1; }
}
