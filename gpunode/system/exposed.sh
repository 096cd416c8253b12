# Prints each file or folder that root runs by and others than root may write, as exposed=MODE UID GID PATH, and each
# file with passwords of repositories that everybody may read, as readable=. Takes FILES, patterns.
#
# Where a file is a link, its target counts, and the folder that this stands in: whoever may write there puts another
# file in its place.

# shellcheck disable=SC2086  # They are patterns.
set -- $FILES
links=; folders=$NL
for file in "$@"; do [ ! -L "$file" ] || links=$links$file$NL; done
set -f; IFS=$NL
# shellcheck disable=SC2086  # They are lines.
[ -z "$links" ] || for target in $(readlink -f -- $links); do
  folder=${target%/*}
  case "$folders" in *"$NL${folder:=/}$NL"*) ;; *) folders=$folders$folder$NL;; esac
done
# shellcheck disable=SC2086
for line in $(stat -L -c '%A %u %g %a %u %g %n' -- "$@" $folders); do
  case "$line" in -??????r*/auth.conf*|-??????r*/credentials.d/*) echo "readable=${line#* * * }";; esac
  case "$line" in
    # What a link to /dev/null gives is neither file nor folder.
    [!d-]*|[d-]????-??-?' 0 '*|[d-]???????-?' 0 0 '*) ;;
    *) echo "exposed=${line#* * * }";;
  esac
done
unset IFS; set +f
