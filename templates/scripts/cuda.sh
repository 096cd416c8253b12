# The transaction of a CUDA toolkit by NVIDIA's .run file, on top of runfile_installer.sh and owned.sh.
# A toolkit of several gigabytes is not copied before it is replaced, but renamed, and renamed back where need be.

# shellcheck disable=SC2154  # set by whoever sends it

save() {
  check_runfile
  if [ -e "$toolkit" ]; then : > "$checkpoint/there"; fi
  readlink /usr/local/cuda > "$checkpoint/link" 2>/dev/null || true
}

change() {
  if [ -e "$toolkit" ]; then mv -T "$toolkit" "$toolkit.gpunode-before"; fi
  mkdir -p "$runfiles/tmp"
  run_installer "$installer_log" "$runfile" --silent --toolkit --toolkitpath="$toolkit" --no-man-page --override \
    --tmpdir="$runfiles/tmp" || {
    echo "gpunode: CUDA $version was not installed; what was there before is put back" >&2
    blameless || reject "the installer of CUDA $release exits $code: ${advice:-see its log}"
    exit 1; }
  said=$("$toolkit/bin/nvcc" --version 2>&1) || true
  case "$said" in *"release $version,"*) ;; *) reject "CUDA $version is installed, and its nvcc says: $said";; esac
  # Its version.json need not tell the release (gpunode/components/cuda/state.sh).
  printf '%s %s\n' "$release" "$(cat "$toolkit/version.json" 2>/dev/null | sha256sum | cut -d' ' -f1)" \
    > "$toolkit/.gpunode-release"
  # From here on there is no way back, and the gigabytes that were for it go.
  sync -f "$toolkit"
  : > "$checkpoint/proven"
  sync "$checkpoint/proven"
  rm -rf "$runfiles/tmp" "$toolkit.gpunode-before" "$runfile" "$runfile.sha256"
}

restore() {
  if [ -e "$checkpoint/proven" ]; then
    echo "gpunode: CUDA $version is installed and proven, and stays; only what was for the way back goes" >&2
    rm -rf "$runfiles/tmp" "$toolkit.gpunode-before" "$runfile" "$runfile.sha256"
    return
  fi
  rm -rf "$runfiles/tmp"
  # Somebody installed packages since.
  if owned "$toolkit/bin/nvcc"; then
    echo "gpunode: packages have brought $toolkit by now: it stays as it is" >&2
    [ ! -e "$toolkit.gpunode-before" ] || echo "gpunode: remove $toolkit.gpunode-before where nobody needs it" >&2
    return 0
  fi
  if [ -e "$toolkit.gpunode-before" ]; then rm -rf "$toolkit" && mv -T "$toolkit.gpunode-before" "$toolkit" || return 1
  elif [ ! -e "$checkpoint/there" ]; then rm -rf "$toolkit" "/etc/ld.so.conf.d/cuda-$dashed.conf" || return 1; fi
  if [ -s "$checkpoint/link" ]; then ln -sfn "$(cat "$checkpoint/link")" /usr/local/cuda
  elif [ -L /usr/local/cuda ]; then rm -f /usr/local/cuda; fi
}
