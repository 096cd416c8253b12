# Functions, on top of mig_asking.sh: a GPU instance is created with its compute instances.

# shellcheck disable=SC2154  # set by whoever sends it

# Of what a GPU refuses what is asked is to blame, unless it is in use, lost, without driver, or did not answer.
refused() { case "$code" in 4|9|12|15|18|19|124|137) fails "$1 ($(words))";; *) fails "$1 ($(words))" target;; esac; }
# still_missing WANTED THERE: print the sizes of compute instances that are wanted and not there; fails where others are
still_missing() {
  printf '%s %s\n' "${1:-,}" "${2:-,}" | awk '{
    split($1, wanted, ","); many = split($2, there, ",")
    for (n = 1; n <= many; n++) if (there[n] != "") has[there[n]]++
    for (n = 1; n in wanted; n++) {
      if (has[wanted[n]] > 0) has[wanted[n]]--
      else if (wanted[n] != "") line = line "," wanted[n]
    }
    for (size in has) if (has[size] > 0) exit 1
    print substr(line, 2)
  }'
}
create() {
  profile=${1%%:*}; start=${1#*:}; start=${start%%=*}; sizes=${1#*=}; whole=${profile%%g*}
  # What a loss of power left without its compute instances gets them where nothing may be destroyed; else it is gone.
  stands=''; place="${1%%=*}="
  [ -z "${keep:-}" ] || stands=$(printf '%s\n' "$found" | awk -v place="$place" 'index($2, place) == 1 {print; exit}')
  if [ -n "$stands" ]; then
    sizes=$(still_missing "$sizes" "${stands#*=}") || {
      fails "GPU $gpu: $profile:$start has compute instances ${stands#*=}, and ${1#*=} are to be there"; return 1; }
    made=${stands%% *}; create_compute; return
  fi
  number=$(printf '%s\n' "$profiles" | awk -v name="$profile" '$1 == "|" && $3 == "MIG" && $4 == name {print $5; exit}')
  [ -n "$number" ] || { fails "GPU $gpu has no profile $profile in its own list" target; return 1; }
  with=''; [ "$sizes" != "$whole" ] || with=-C
  ask mig -i "$gpu" -cgi "$number:$start" $with || { refused "GPU $gpu refuses $profile:$start"; return 1; }
  [ -z "$with" ] && [ -n "$sizes" ] || return 0
  made=$(printf '%s\n' "$said" | sed -n 's/^Successfully created GPU instance ID *\([0-9][0-9]*\) on GPU.*/\1/p')
  create_compute
}
# orders SIZES: print orders in which to create compute instances in the GPU instance $made, by its own list of places:
# a driver takes the first that is free. Behind them, larger ones first: which one a driver takes is written nowhere.
orders() {
  case "$1" in *[!,"${1%%,*}"]*) ;; *) printf '%s\n' "$1"; return;; esac
  ask mig -i "$gpu" -gi "$made" -lcipp || said=''
  places=$said
  ask mig -i "$gpu" -gi "$made" -lci || said=''
  printf '%s\n%s\n%s\n' "$1" "$places" "$said" | awk -v of="$made" '
    function go(depth, line,   size, starts, n, number, slot, free) {
      if (depth == many) {print substr(line, 2); return}
      for (size = 8; size; size--) if (left[size] > 0) {
        number = split(places[size], starts, ","); free = 0
        for (n = 1; n <= number && !free; n++)
          for (slot = free = 1; slot <= size; slot++) if (taken[starts[n] + slot] > 0) free = 0
        if (!free) continue
        for (slot = 1; slot <= size; slot++) taken[starts[n - 1] + slot] = 1
        left[size]--; go(depth + 1, line "," size); left[size]++
        for (slot = 1; slot <= size; slot++) taken[starts[n - 1] + slot] = 0
      }
    }
    NR == 1 {many = split($0, sizes, ","); for (n = 1; n <= many; n++) left[sizes[n]]++}
    /Profile ID .*Placement/ {split($0, part, /[{}]/); places[substr(part[3], 2) + 0] = part[2]}
    $1 == "|" && $4 == "MIG" && $3 == of {split($8, at, ":"); for (n = 1; n <= at[2]; n++) taken[at[1] + n] = 1}
    END {go(0, "")}'
  printf '%s\n' "$1"
}
# create_compute: put compute instances of $sizes into the GPU instance $made
create_compute() {
  ask mig -i "$gpu" -gi "${made:-none}" -lcip ||
    { fails "the compute instance profiles of $profile:$start on GPU $gpu cannot be read ($(words))"; return 1; }
  offered=$said
  for order in $(orders "$sizes"); do
    numbers=''
    for size in $(printf '%s' "$order" | tr , ' '); do
      compute=$profile; [ "$size" = "$whole" ] || compute=${size}c.$profile
      number=$(printf '%s\n' "$offered" |
        awk -v name="$compute" '$1 == "|" && $4 == "MIG" && $5 == name {sub(/\*/, "", $6); print $6; exit}')
      [ -n "$number" ] ||
        { fails "GPU $gpu: $profile:$start has no compute instance profile $compute" target; return 1; }
      numbers=$numbers,$number
    done
    ! ask mig -i "$gpu" -gi "$made" -cci "${numbers#,}" || return 0
    refused "GPU $gpu refuses compute instances $order in $profile:$start" || [ "$code" -eq 23 ] || return 1
    # What found room in this order makes room for the next one.
    begun=$(printf '%s\n' "$said" | sed -n 's/^Successfully created compute instance ID *\([0-9]*\) .*/\1/p')
    for number in $begun; do
      ask mig -i "$gpu" -gi "$made" -ci "$number" -dci ||
        { fails "compute instance $number of $profile:$start on GPU $gpu cannot be destroyed ($(words))"; return 1; }
    done
  done
  return 1
}
