# Functions of the driver's transaction by rpm, beneath dnf and zypper; operations/families/family.py says what each
# does.
# `of_driver` is each manager's own. Modules that come built per kernel may be there several times.

# shellcheck disable=SC2154  # set by whoever sends it

verified=''
driver_packages() {
  of_driver | awk '
    $2 !~ /^kernel([0-9]+[.][0-9]+)?(-|$)/ || $2 ~ /^kernel-firmware-nvidia-gsp/ {print $2, $3, $1, "installed"}' |
    sort -u | while read -r package version want state; do
      [ -z "$verified" ] || is_whole "$package" || state=broken
      echo "$package $version $want $state"
    done
}
is_whole() { rpm -V --nodeps --noscripts --noconfig --nomtime "$1" > /dev/null 2>&1; }
saved_file() {
  for file in "$1/$2-${3#*:}".*.rpm; do
    if [ -f "$file" ] && [ "$(evr -p --nosignature "$file")" = "$3" ] && rpm -K "$file" > /dev/null 2>&1; then
      printf '%s' "$file"; return 0
    fi
  done
  return 1
}
is_installed() { [ "$(evr "${1%%=*}")" = "${1#*=}" ]; }
stated() { evr "$1" || echo absent; }
release() { :; }
keep() { :; }
forget() { :; }
# rpm lists what it has begun to unpack only when that has ended: what is put back is looked at file by file.
finish_half() { verified=yes; }
finish_first() {
  [ -n "$names" ] || return 1
  for item in $names; do rpm -q "$item" > /dev/null 2>&1 || return 1; done
  [ -z "$(driver_packages | cut -d' ' -f1 | grep -v -e -kmp- | uniq -d)" ]
}
# By rpm alone: it needs no repository, and takes whatever an interruption left. What is installed once more at the
# version that is there must not run the scripts of a removal: they come last, and take the module away again.
# shellcheck disable=SC2086,SC2116
put_back() {
  restore_choices
  [ -z "$added" ] || rpm -e --nodeps $added
  moved=''; again=''
  while read -r package version _; do
    file=$(saved_file "$checkpoint/$saved" "$package" "$version") || continue
    there=$(evr "$package") || there=''
    case " $(echo $there) " in
      "  ") again="$again $file";;
      " $version ") is_whole "$package" || again="$again $file";;
      *" $version "*) again="$again $file"
        for other in $there; do
          [ "$other" = "$version" ] || rpm -e --nodeps "$package-${other#*:}"
        done;;
      *) moved="$moved $file";;
    esac
  done < "$checkpoint/packages"
  [ -z "$moved" ] || rpm -U --oldpackage --nodeps $moved
  [ -z "$again" ] || rpm -U --oldpackage --replacepkgs --nodeps --nopreun --nopostun $again
  # Once is enough: what still differs then, somebody else changes.
  verified=''
}
