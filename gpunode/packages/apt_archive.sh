# What apt reads, by its own account, and the text of each file that names it.
# Prints apt=STATUS, target=ORIGIN|URI|RELEASE|COMPONENT|ENTRY, file=PATH BASE64, own_path=PATH, own=BASE64.
# Takes SOURCE, gpunode's own entry of the distribution's archive.

# shellcheck disable=SC2016
targets=$(apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SOURCESENTRY)' \
  'Created-By: Packages'); echo "apt=$?"
[ -z "$targets" ] || printf '%s\n' "$targets" | sort -u | sed 's/^/target=/'
printf '%s\n' "$targets" | sed 's/.*|//; s/:[0-9]*$//' | sort -u | while read -r file; do
  [ -f "$file" ] && echo "file=$file $(file_base64 "$file")"
done
echo "own_path=$SOURCE"
[ -f "$SOURCE" ] && echo "own=$(file_base64 "$SOURCE")"
