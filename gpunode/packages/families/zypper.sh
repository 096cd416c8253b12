# Functions by which rpm and zypper's locks are asked; it prints nothing.
# Takes LOCKS, the file of locks; EVR, rpm's format of one; OWN and FOREIGN, what is the driver's and what of that is
# not; BESIDE, what is the container toolkit's and DCGM's: regular expressions of names; COMPANIONS, names of what the
# driver asks of the distribution.
#
# patterns_of_locks prints NUMBER REGULAR-EXPRESSION NAME of each lock that keeps whole packages as they are; of_driver
# prints WANT NAME VERSION of every package of the driver, and of kernels, where WANT is hold or install; of_all these
# and those; unlocking NAME... prints the file of locks without the entries that one of the names
# fits, or that name a package of the driver: zypper takes a lock of what is not there for a ban on it.

patterns_of_locks() {
  awk 'BEGIN {RS = ""; FS = "\n"} {
    kind = "package"; match_type = "substring"; partly = 0; count = 0
    for (i = 1; i <= NF; i++) {
      key = $i; sub(/:.*/, "", key); value = $i; sub(/^[^:]*: */, "", value)
      if (key == "type") kind = value
      else if (key == "match_type") match_type = value
      else if (key == "solvable_name") names[++count] = value
      else if (key == "version" || key == "repo" || key == "install_status" || key == "query_string") partly = 1
    }
    if (kind != "package" || partly || match_type !~ /^(glob|exact|substring)$/) next
    for (i = 1; i <= count; i++) {
      text = names[i]
      if (text !~ /^[A-Za-z0-9._+~*?-]+$/) continue
      gsub(/[.+]/, "[&]", text); gsub(/[*]/, ".*", text); gsub(/[?]/, ".", text)
      if (match_type == "substring") text = ".*" text ".*"
      print NR, "^" text "$", names[i]
    }
  }' "$LOCKS" 2> /dev/null
}
of_those() {
  { [ ! -f "$LOCKS" ] || patterns_of_locks | sed 's/^[0-9]* /lock /'
    rpm -qa --qf "have %{NAME} $EVR\\n" | sort; } |
    awk -v own="$OWN" -v foreign="$FOREIGN" -v also="$1" -v companions=" $COMPANIONS " '
      $1 == "lock" {locks[++count] = $2; next}
      ($2 ~ own && $2 !~ foreign) || $2 ~ /^kernel(-|$)/ ||
      index(companions, " " $2 " ") || (also != "" && $2 ~ also) {
        want = "install"; for (i = 1; i <= count; i++) if ($2 ~ locks[i]) want = "hold"
        print want, $2, $3
      }'
}
of_driver() { of_those ''; }
of_all() { of_those "$BESIDE"; }
unlocking() {
  [ -f "$LOCKS" ] || return 0
  fitting=$(patterns_of_locks | awk -v names="$*" -v own="$OWN" -v foreign="$FOREIGN" '
    BEGIN {count = split(names, all, " ")}
    $3 ~ own && $3 !~ foreign {printf " %s ", $1; next}
    {for (i = 1; i <= count; i++) if (all[i] ~ $2) {printf " %s ", $1; break}}')
  awk -v fitting="$fitting" 'BEGIN {RS = ""} index(fitting, " " NR " ") == 0 {printf "\n%s\n\n", $0}' "$LOCKS"
}
