# Functions of runtime.sh that are containerd's own; they take $binary, $config and $checkpoint.
# The merged configuration is looked at without its imports, which containerd 1 prints in any order
# (gpunode.components.runtimes.containerd.state makes the same digest). `config dump` is containerd's own check, and exits 0 for
# a file that it ignores: what it prints is looked at.

# shellcheck disable=SC2154  # set by whoever sends it

check() { "$binary" --config "$1" config dump > /dev/null; }
effective() {
  "$binary" --config "$1" config dump > "$checkpoint/merged.toml" || return 1
  awk '
    /^[ \t]*\[/ {
      section = $0; gsub(/^[ \t]*\[|\][ \t]*$/, "", section); gsub(/["\047]/, "", section)
      ours = sub(/^plugins\.(io\.containerd\.grpc\.v1\.cri|io\.containerd\.cri\.v1\.runtime|cri)/, "", section)
      sub(/^\./, "", section); next
    }
    ours && $2 == "=" {
      value = $3; gsub(/["\047]/, "", value)
      if (section == "containerd" && $1 == "default_runtime_name") name = value
      if (section == "containerd.default_runtime" && $1 == "runtime_type" && value != "") table = 1
      if (section == "" && $1 == "enable_cdi" ||
          section ~ /^containerd\.runtimes\.[^.]*\.options$/ && ($1 == "BinaryName" || $1 == "SystemdCgroup"))
        print (section == "" ? "" : section ".") $1 "=" value
    }
    END {
      # The deprecated table wins, where there is one.
      if (table) print "containerd.default_runtime.runtime_type is set"
      else if (name != "") print "containerd.default_runtime_name=" name
    }' "$checkpoint/merged.toml"
}
digest() { "$binary" --config "$config" config dump 2>/dev/null | grep -v "^imports =" | sha256sum | cut -d ' ' -f 1; }
plugin_state() {
  ctr=${binary%/*}/ctr; [ -x "$ctr" ] || ctr=ctr
  timeout -k 2 5 "$ctr" plugins ls |
    awk '($1=="io.containerd.grpc.v1"&&$2=="cri")||($1=="io.containerd.cri.v1"&&$2=="runtime"){print $NF}' | sort -u
}
