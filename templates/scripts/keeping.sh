# Functions; they print nothing but errors. What a transaction keeps of the files that it changes, and how they come
# back. They take $checkpoint, its folder, placing.sh, $hidden, where a name beside a file has to begin with a dot, and
# $aside, the folder of such names where it is not the file's own: on the same file system, and only of one file's.
#
# keep_file FILE READ [REAL] keeps a file before anything changes, and fails where it is no more what was read: READ is
# its SHA-256, `none` where it was absent or empty, or `unread`. REAL is the file that is changed, where FILE leads.
# real_file FILE prints REAL. stage_file FILE MODE writes standard input beside it, and place_file FILE puts that in its
# place; MODE is digits, or - where it stays whose it was. remove_file FILE takes it away.
# put_files_back puts back all that was kept. What is neither that nor what was staged, somebody wrote since: it is kept
# as FILE.gpunode-lost first, and named. is_as_kept FILE, is_somebodys FILE and keep_lost FILE are parts of that.
# note_files FILE... has it known that what they say now is gpunode's own doing.
#
# recover_checkpoint FOLDER NAME brings the former change's way back where one was killed as it took that one's place;
# clear_checkpoint FOLDER NAME clears what else was left of one that did not begin. Nobody may be at work on it.

# shellcheck disable=SC2154  # $checkpoint is the transaction's.
beside_file() (
  dot=; [ -z "${hidden:-}" ] || dot=.
  printf '%s' "${aside:-${1%/*}}/$dot${1##*/}.gpunode-$2"
)
is_there() { [ -e "$1" ] || [ -L "$1" ]; }
is_same() {
  if [ -L "$1" ] || [ -L "$2" ]; then [ -L "$1" ] && [ -L "$2" ] && [ "$(readlink "$1")" = "$(readlink "$2")" ]
  elif [ -e "$1" ] && [ -e "$2" ]; then cmp -s "$1" "$2"
  else [ ! -e "$1" ] && [ ! -e "$2" ]; fi
}
file_mode() { stat -c '%a %u %g' "$1" 2>/dev/null || echo absent; }

keep_file() (
  real=${3:-$1}
  as_read "$real" "$2"
  echo "$1 $real" >> "$checkpoint/kept" || exit 1
  # A link that is to go, or that a file of gpunode's own takes the place of, comes back as a link.
  ! is_there "$real" || { mkdir -p "$checkpoint/files${real%/*}" && cp -Pp "$real" "$checkpoint/files$real"; }
)
real_file() (
  while read -r given real; do
    if [ "$given" = "$1" ]; then printf '%s' "$real"; exit 0; fi
  done < "$checkpoint/kept"
  echo "gpunode: $1 was not kept, and is not changed" >&2
  exit 1
)
is_as_kept() ( real=$(real_file "$1") && is_same "$checkpoint/files$real" "$real" )
note_text() { echo "$(file_digest "$2") $1" >> "$checkpoint/wrote" && sync "$checkpoint/wrote"; }
note_files() (
  for file; do real=$(target_of "$file") || real=$file; note_text "$real" "$file" || exit 1; done
)
stage_file() (
  real=$(real_file "$1") || exit 1
  new=$(beside_file "$real" new)
  (umask 022; mkdir -p "${real%/*}") || exit 1
  rm -f "$new" && cat > "$new" || exit 1
  # The file may hold registry credentials: who could not read it before shall not now.
  if [ "$2" = - ]; then as_before "$new" "$real"; else chmod "$2" "$new"; fi || exit 1
  # Before it is in its place: whatever happens then, it is known for gpunode's.
  note_text "$real" "$new" && sync "$new"
)
place_file() ( real=$(real_file "$1") && mv -fT "$(beside_file "$real" new)" "$real" )
remove_file() ( real=$(real_file "$1") && rm -f "$real" )

is_somebodys() (
  real=$(real_file "$1") || exit 1
  is_there "$real" && ! is_same "$checkpoint/files$real" "$real" || exit 1
  [ -L "$real" ] || ! grep -sqxF "$(file_digest "$real") $real" "$checkpoint/wrote"
)
keep_lost() (
  is_somebodys "$1" || exit 0
  real=$(real_file "$1") || exit 1
  lost=$(beside_file "$real" lost)
  is_same "$real" "$lost" ||
    { cp -P --preserve=timestamps --backup=numbered "$real" "$lost" &&
      { [ -L "$lost" ] || { as_before "$lost" "$real" && sync "$lost"; }; }; } || exit 1
  echo "gpunode: $real was written by somebody else since it was changed; what it said is kept as $lost" >&2
)
put_file_back() (
  real=$(real_file "$1") || exit 1
  new=$(beside_file "$real" new); saved=$checkpoint/files$real
  rm -f "$new" && keep_lost "$1" || exit 1
  # With a number: in a trap, as where a change that failed is undone, a bare exit has the status of before it.
  if ! is_there "$saved"; then rm -f "$real" || exit 1; exit 0; fi
  if is_same "$saved" "$real" && [ "$(file_mode "$saved")" = "$(file_mode "$real")" ]; then exit 0; fi
  (umask 022; mkdir -p "${real%/*}")
  cp -Pp "$saved" "$new" && { [ -L "$new" ] || sync "$new"; } && mv -fT "$new" "$real"
)
put_files_back() (
  [ -e "$checkpoint/kept" ] || exit 0
  while read -r given _; do put_file_back "$given" || exit 1; done < "$checkpoint/kept"
)

# Between these renames (operations/transaction.py) nothing but them had been done yet.
recover_checkpoint() (
  [ -e "$1/$2.before" ] && [ -e "$1/$2.json.new" ] || exit 0
  rm -rf "${1:?}/$2" && mv -T "$1/$2.before" "$1/$2" || exit 1
  [ ! -e "$1/$2/.script" ] || cmp -s "$1/$2/.script" "$1/$2.sh" || mv -f "$1/$2/.script" "$1/$2.sh" || exit 1
  rm -rf "$1/$2.new" "$1/$2.json.new"
)
clear_checkpoint() (
  recover_checkpoint "$1" "$2" || exit 1
  rm -rf "${1:?}/$2.new" "$1/$2.before" "$1/$2.json.new" || exit 1
  for script in "$1/$2".sh.[0-9]*; do
    # Of a run that is about to begin.
    [ -d "/proc/${script##*.}" ] || rm -f "$script" || exit 1
  done
)
