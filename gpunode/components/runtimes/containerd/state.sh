# Prints the running unit's own binary and file (a node may have two containerd binaries), what they say, and when the
# daemon started and its files were written. Takes UNIT, and of a program that brings its own containerd CONFIG,
# PROGRAMS (the folder of containerd), CTR, SOCKET and GENERATED (it writes CONFIG at each start), else empty. Asks for
# the unit $UNIT (gpunode/system/unit.sh).
#
# Files and texts travel as base64, since they may hold any byte. Of files and folders it is the ctime that counts:
# `cp -p` sets any mtime that it likes.

unit "$UNIT"
for name in ActiveState UnitFileState; do says "$name"; [ -z "$SAID" ] || echo "$name=$SAID"; done
tell_service "$UNIT"
says ActiveState; active=$SAID
says ActiveEnterTimestamp; [ "$active" != active ] || [ -z "$SAID" ] || echo "started=$SAID"
says ExecStart
binary=; case "$SAID" in '{ path='*) binary=${SAID#'{ path='}; binary=${binary%%[ ;]*};; esac
config=/etc/containerd/config.toml
case "$SAID" in *' --config'[\ =]*|*' -c'[\ =]*)
  set -f
  before=
  for word in $SAID; do
    case "$before" in --config|-c) config=${word%%;*};; esac
    case "$word" in --config=*|-c=*) config=${word#*=}; config=${config%%;*};; esac
    before=$word
  done
  set +f;;
esac
config=${CONFIG:-$config}; [ -z "$PROGRAMS" ] || binary=$PROGRAMS/containerd
# A binary that the unit names and that is missing is told of; another one on the PATH is not what runs.
[ -n "$binary" ] || binary=$(command -v containerd)
echo "unit=$UNIT"; echo "binary=$binary"; echo "config=$config"; [ -z "$GENERATED" ] || echo generated=yes
[ -x "$binary" ] || exit 0
# containerd would wait for a pipe, and read a device without end.
[ ! -e "$config" ] || [ -f "$config" ] || { echo "no_file=$config"; exit 0; }

echo "version=$(timeout -k 2 10 "$binary" --version)"
[ ! -e "$config" ] || echo "text=$(file_base64 "$config")"
# The dot keeps the line ends behind it, which count in the digest.
merged=$(timeout -k 2 20 "$binary" --config "$config" config dump; echo .); merged=${merged%.}
echo "merged=$(printf %s "$merged" | to_base64 "containerd config dump")"

# containerd 1 prints the files that it has read, containerd 2 the patterns of all files. Whether a file found here is
# imported, and in which order, is decided where the texts are parsed (reading.py).
drop_ins=/etc/containerd/conf.d
[ "$UNIT$CONFIG" = containerd.service ] || drop_ins=${config%/*}/conf.d
imports=
set -f; IFS=$NL
for line in $merged; do
  case "$line" in 'imports = ['*']') imports=${line#'imports = ['}; imports=${imports%]}; break;; esac
done
IFS="\"'"
for file in $imports; do
  # 2.2 and newer print that of their own defaults as well.
  case "$GENERATED$file" in yes/etc/containerd/*) ;; yes/*'/*.toml') drop_ins=${file%/*}; break;; esac
done
unset IFS; set +f
echo "drop_ins=$drop_ins"
seen="$NL$config$NL"; others=; folders=${config%/*}
add() {
  [ -f "$1" ] || return 0
  case "$seen" in *"$NL$1$NL"*) return;; esac
  seen="$seen$1$NL"; others=$others$1$NL
  case "$NL$folders$NL" in *"$NL${1%/*}$NL"*) ;; *) folders=$folders$NL${1%/*};; esac
}
# A pattern of containerd's matches hidden files, too, and has [^a] for what is [!a] here.
matches() {
  pattern=$1
  while case "$pattern" in *'[^'*) true;; *) false;; esac; do pattern=${pattern%%'[^'*}'[!'${pattern#*'[^'}; done
  set +f; IFS=
  for file in $pattern ${pattern%/*}/.${pattern##*/}; do add "$file"; done
  set -f; IFS=$NL
}
relative=
set -f; IFS="\"'"
for file in $imports; do
  case "$file" in /*) matches "$file";; ''|,*) ;; *) relative=$relative$file$NL;; esac
done
# A relative one may be of the folder of any file that is imported.
for _ in 1 2; do
  set -f; IFS=$NL
  for folder in $folders; do
    for file in $relative; do matches "$folder/$file"; done
  done
done
set +f; unset IFS
for file in "$drop_ins"/*.toml; do add "$file"; done

# The folders too: a drop-in that was removed leaves no other trace.
overrides=/etc/systemd/system/$UNIT.d noted=/run/gpunode/containerd.loaded
# Of another unit nothing is noted at its start.
[ "$UNIT" = containerd.service ] || noted=/dev/null/none
root=$config; [ -z "$GENERATED" ] || root=
set --
for file in "$root" "$drop_ins" "$overrides" "$overrides"/*.conf "$noted"; do
  [ ! -e "$file" ] || set -- "$@" "$file"
done
rest=$others
while [ -n "$rest" ]; do
  file=${rest%%"$NL"*}; rest=${rest#*"$NL"}
  set -- "$@" "$file"
  text=$(file_base64 "$file"); echo "drop_in=${text:--} $file"
done
[ "$#" -eq 0 ] || stat -c '%.6Z %.6Y %n' "$@" | while read -r changed written file; do
  case "$file" in
    "$noted") digest=; read -r digest < "$noted"; echo "loaded=$digest $written";;
    "$overrides"*) echo "unit_written=$changed";;
    *) echo "written=$changed";;
  esac
done

ctr=${binary%/*}/ctr; [ -x "$ctr" ] || ctr=ctr
client() (
  unset IFS
  # shellcheck disable=SC2086  # $CTR is words.
  timeout -k 2 10 ${CTR:-"$ctr"} ${SOCKET:+--address "$SOCKET"} "$@"
)
set -f; IFS=$NL
for line in $(client plugins ls); do
  case "$line" in
    io.containerd.grpc.v1\ *\ cri\ *|io.containerd.cri.v1\ *\ runtime\ *)
      printf 'plugin=%s\n' "$line"
      case "$line" in *error*) refused=yes;; esac;;
  esac
done
unset IFS; set +f
[ -z "${refused:-}" ] || echo "cri_reason=$(client plugins ls -d id==runtime id==images id==cri |
  sed -n 's/^ *Message: *//p' | head -n 1 | head -c 1000)"
shims=0
for process in /proc/[0-9]*/comm; do
  # One that ended meanwhile cannot be read.
  read -r name < "$process" || continue
  case "$name" in containerd-shim*) shims=$((shims + 1));; esac
done
echo "shims=$shims"
