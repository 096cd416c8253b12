# Functions of runtime.sh that are containerd's own; they take $binary, $config, $ctr, $socket and $checkpoint.
# The merged configuration is looked at without its imports, which containerd 1 prints in any order
# (gpunode.components.runtimes.containerd.state makes the same digest). `config dump` exits 0 for a file that it ignores
# and for settings that the CRI plugin refuses: what it prints is compared, and validated.

# shellcheck disable=SC2034,SC2154  # runtime.sh, which it is sent with, sets and reads them

check() { "$binary" --config "$1" config dump > "$checkpoint/merged.toml" && validated "$checkpoint/merged.toml"; }
# Print the CRI plugin's settings of a merged configuration, with the other plugins that have settings disabled: what
# they would do with sockets, snapshots, containers and devices of the node. Metadata (bolt) needs one snapshotter.
cri_alone() {
  awk '
    /^version = / { version = $0 }
    /^[ \t]*\[/ {
      name = $0; gsub(/^[ \t]*\[+|\]+[ \t]*$|["\047]/, "", name)
      is_cri = name ~ /^plugins\.io\.containerd\.(grpc\.v1\.cri|cri\.v1\.(runtime|images))(\.|$)/
      if (!is_cri && sub(/^plugins\./, "", name) && name !~ /\.(bolt|native)$/) disabled = disabled "\"" name "\", "
    }
    is_cri { settings = settings $0 "\n" }
    END { print version "\ndisabled_plugins = [" disabled "]\nrequired_plugins = [\"" cri "\"]\n" settings }
  ' cri=io.containerd.grpc.v1.cri "$1"
}
# The daemon's own validation: the CRI plugin of a second containerd, in folders of its own, validates its settings
# before it misses the disabled plugins. It is required, so that this containerd ends there, and opens no socket.
validated() {
  trial=$checkpoint/trial code=0
  rm -rf "$trial" && mkdir "$trial" && cri_alone "$1" > "$trial/config.toml" || return 1
  NOTIFY_SOCKET='' timeout -k 2 10 "$binary" --config "$trial/config.toml" --root "$trial/root" \
    --state "$trial/state" --address "$trial/socket" > "$trial/log" 2>&1 || code=$?
  said=$(sed -n 's/^containerd: load required plugin io.containerd.grpc.v1.cri: //p' "$trial/log" | head -c 1000)
  rm -rf "$trial"
  case "$said" in
    *'invalid plugin config: '*|*'invalid cri '*|*'failed to load base OCI spec '*)
      refused=$said; return 1;;
    # What is missing because it is disabled, as containerd 1.6, 1.7 and 2 say it.
    'failed to get services: '*|'failed to create containerd client: '*) ;;
    *'no plugins registered for io.containerd.'[gt]*) ;;
    *) echo "gpunode: caution: whether containerd's CRI plugin loads with the new configuration is not known before a" \
      "restart: its validation ended with exit status $code (${said:-nothing about that plugin})" >&2;;
  esac
}
effective() {
  "$binary" --config "$1" config dump > "$checkpoint/merged.toml" || return 1
  # Of an option, containerd 2 takes any spelling, the last one of a dump; containerd 1 its own first (keys.py).
  awk '
    /^version = / { folds = $3 > 2 }
    /^[ \t]*\[/ {
      section = $0; gsub(/^[ \t]*\[|\][ \t]*$/, "", section); gsub(/["\047]/, "", section)
      ours = sub(/^plugins\.(io\.containerd\.grpc\.v1\.cri|io\.containerd\.cri\.v1\.runtime|cri)/, "", section)
      sub(/^\./, "", section); next
    }
    ours && $2 == "=" {
      value = $3; gsub(/["\047]/, "", value)
      if (section == "containerd" && $1 == "default_runtime_name") name = value
      if (section == "containerd.default_runtime" && $1 == "runtime_type" && value != "") table = 1
      if (section == "" && $1 == "enable_cdi") print $1 "=" value
      key = tolower($1) == "binaryname" ? "BinaryName" : tolower($1) == "systemdcgroup" ? "SystemdCgroup" : ""
      option = section "." key
      is_option = section ~ /^containerd\.runtimes\.[^.]*\.options$/ && key != ""
      if (is_option && (folds || $1 == key || !(option in options))) options[option] = value
    }
    END {
      for (option in options) print option "=" options[option]
      # The deprecated table wins, where there is one.
      if (table) print "containerd.default_runtime.runtime_type is set"
      else if (name != "") print "containerd.default_runtime_name=" name
    }' "$checkpoint/merged.toml"
}
digest() { "$binary" --config "$config" config dump 2>/dev/null | grep -v "^imports =" | sha256sum | cut -d ' ' -f 1; }
client() {
  own=${binary%/*}/ctr; [ -x "$own" ] || own=ctr
  # shellcheck disable=SC2086  # $ctr is words.
  timeout -k 2 5 ${ctr:-"$own"} ${socket:+--address "$socket"} "$@"
}
plugin_state() {
  state=$(client plugins ls |
    awk '($1=="io.containerd.grpc.v1"&&$2=="cri")||($1=="io.containerd.cri.v1"&&$2=="runtime"){print $NF}' | sort -u)
  case "$state" in *error*) state="error: $(client plugins ls -d id==runtime id==images id==cri |
    sed -n 's/^ *Message: *//p' | head -n 1)";; esac
  echo "$state"
}
