# Functions about a CDI specification. aside: what was there before and is not ours is kept, under a name that
# no runtime reads; it takes $stale, $mark, $target and $own. proven FILE ends the script where it does not name the
# libcuda of the loaded driver's $version, below its $root.

# shellcheck disable=SC2154  # set by the caller

aside() {
  for file in $stale; do
    if [ "$(head -n 1 "$file" 2>/dev/null)" = "$mark" ]; then rm -f "$file"
    elif [ "$file" != "$target" ] || [ "$own" = yes ]; then mv -fT "$file" "$file.gpunode-before"; fi
  done
}
# shellcheck disable=SC2015
proven() {
  at=; [ "${root:-/}" = / ] || at=$root/
  grep -qE '"?kind"?: *"?nvidia[.]com/gpu' "$1" && grep -F "libcuda.so.$version" "$1" | grep -qF "$at" || {
    echo "gpunode: nvidia-ctk made a CDI specification that does not name libcuda.so.$version, which is the loaded" \
      "driver's${at:+, or not below $at}" >&2
    echo "gpunode: remedy: install libcuda of that version (\`ldconfig -p | grep libcuda\` on the node shows which" \
      "one is" \
      "found), or boot the node where a newer driver waits for that; run again" >&2
    exit 1; }
}
