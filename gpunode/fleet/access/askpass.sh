# FOLDER VARIABLE: print the path of a program that prints the environment's variable, for sudo and su.
# It stands where programs may be run: /tmp is often mounted noexec. The password itself is in no file.
program=
for folder in "${TMPDIR:-$FOLDER}" "$HOME" /var/tmp; do
  made=$(mktemp "$folder/pyinfra-sudo-askpass-XXXXXXXXXXXX") || continue
  [ -z "$program" ] || rm -f "$program"
  program=$made
  # shellcheck disable=SC2016 # the program's own variable
  printf '#!/bin/sh\nprintf '\''%%s\\n'\'' "${%s}"\n' "$VARIABLE" > "$program"
  chmod 755 "$program"
  ! "$program" > /dev/null 2>&1 || break
done
echo "$program"
