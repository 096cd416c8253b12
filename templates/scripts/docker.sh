# Functions of runtime.sh that are docker's own; they take $binary, $expected and $checkpoint.
# dockerd has no merged configuration to print: what it runs by is what it answers, after it has read its file.

# shellcheck disable=SC2154  # set by whoever sends it

check() {
  if "$binary" --help 2>&1 | grep -q -e '--validate'; then "$binary" --validate --config-file "$1" > /dev/null; fi
}
effective() { printf '%s\n' "$expected"; }
digest() { :; }
# shellcheck disable=SC2016
plugin_state() {
  timeout -k 2 5 docker info --format 'DefaultRuntime={{.DefaultRuntime}}
CgroupDriver={{.CgroupDriver}}
{{range $name, $row := .Runtimes}}Runtime {{$name}}={{$row.Path}}
{{end}}{{if .ServerVersion}}{{else}}no daemon answers{{end}}' > "$checkpoint/effective" || return 0
  # A client of before docker 25 knows no such field, so that a template of its own would fail.
  case "$(timeout -k 2 5 docker info --format '{{json .}}' | sed -n 's/.*"CDISpecDirs":\(\[.\|null\).*/\1/p')" in
    '') ;;
    '["') echo CDI=true >> "$checkpoint/effective";;
    *) echo CDI=false >> "$checkpoint/effective";;
  esac
  if grep -qxF 'no daemon answers' "$checkpoint/effective"; then return 0; fi
  lacking=$(as_expected "$checkpoint/effective" | tr '\n' ' ')
  if [ -n "$lacking" ]; then echo "lacks $lacking"; else echo ok; fi
}
