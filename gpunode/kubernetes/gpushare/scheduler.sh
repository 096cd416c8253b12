# kube-scheduler of a control-plane host: its static manifest, gpunode's configuration files, and what runs.
# Prints manifest=BASE64, configuration=SHA256 PATH, process=BASE64 (a command line). Takes MANIFEST and FOLDER.

[ -f "$MANIFEST" ] && echo "manifest=$(file_base64 "$MANIFEST")"
for file in "$FOLDER"/scheduler-*.yaml; do
  [ -f "$file" ] && echo "configuration=$(sha256sum < "$file" | cut -d" " -f1) $file"
done
for comm in /proc/[0-9]*/comm; do
  name=; read -r name 2>/dev/null < "$comm" || continue
  [ "$name" = kube-scheduler ] || continue
  echo "process=$(tr '\0' '\n' 2>/dev/null < "${comm%/comm}/cmdline" | to_base64 "the command line of kube-scheduler")"
done
