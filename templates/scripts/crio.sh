# Functions of runtime.sh that are CRI-O's own; they take $binary, $root, $drop_ins, $config (the drop-in), $expected
# and $checkpoint. `crio config` judges the merged configuration and prints it, what is a default behind `# `; what
# CRI-O runs by it says itself.

# shellcheck disable=SC2154  # set by whoever sends it

# CRI-O reads every file of the folder: what is staged is judged among copies of the others.
merged_with() (
  judged=$drop_ins root_file=$root
  if [ "$1" != "$config" ]; then
    judged=$checkpoint/drop-ins
    rm -rf "$judged" && mkdir "$judged" || exit 1
    [ ! -d "$drop_ins" ] || cp -a "$drop_ins/." "$judged" || exit 1
    rm -f "$judged/${config##*/}" && cp "$1" "$judged/${config##*/}" || exit 1
  fi
  # One that is named and not there is an error to CRI-O.
  [ -e "$root" ] || root_file=
  "$binary" --config "$root_file" --config-dir "$judged" config
)
told() {
  awk '
    { sub(/^[ \t]*(# )?[ \t]*/, "") }
    /^\[/ { section = $0; gsub(/[][" \t]/, "", section); next }
    $2 == "=" {
      value = $3; gsub(/"/, "", value)
      if (section == "crio.runtime" && ($1 == "default_runtime" || $1 == "cgroup_manager")) print $1 "=" value
      if (sub(/^crio\.runtime\.runtimes\./, "runtimes.", section)) runtime = section
      if (section == runtime && $1 == "runtime_path") print section "." $1 "=" value
    }' "$1"
}
check() { merged_with "$1" > /dev/null; }
effective() { merged_with "$1" > "$checkpoint/merged.toml" && told "$checkpoint/merged.toml"; }
digest() { :; }
plugin_state() {
  says="$checkpoint/running.toml"
  timeout -k 2 5 "$binary" status config > "$says" || timeout -k 2 5 crio-status config > "$says" || return 0
  told "$says" > "$checkpoint/effective"
  lacking=$(as_expected "$checkpoint/effective" | tr '\n' ' ')
  if [ -n "$lacking" ]; then echo "lacks $lacking"; else echo ok; fi
}
