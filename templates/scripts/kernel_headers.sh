# Installs the headers of kernel $release, by the version of the kernel's own package: kernel-core has kernel-devel,
# kernel-rt-core has kernel-rt-devel, kernel-default-base has kernel-default-devel.
# It takes $upgrade, the command that upgrades a node, and the function `add NAME VERSION`.

# shellcheck disable=SC2154  # set by whoever sends it

owner=''
for image in "/lib/modules/$release/vmlinuz" "/usr/lib/modules/$release/vmlinuz" "/boot/vmlinuz-$release"; do
  owner=$(rpm -qf --qf '%{NAME} %{VERSION}-%{RELEASE}\n' "$image" 2>/dev/null | grep -v ' is not owned by ' | head -n 1)
  case "$owner" in kernel*' '*) break;; *) owner='';; esac
done
[ -n "$owner" ] || {
  echo "gpunode: no package of rpm's brought kernel $release, so that none with its headers is known; nothing was" \
    "installed" >&2
  echo "gpunode: remedy: put its headers to /lib/modules/$release/build, or boot a kernel of the distribution's" >&2
  exit 1; }
name=${owner%% *}; version=${owner##* }
name=${name%-core}; name=${name%-base}; name=$name-devel
add "$name" "$version" || {
  echo "gpunode: $name $version, the headers of kernel $release, is not to be had: repositories drop those of older" \
    "kernels; nothing else was changed" >&2
  echo "gpunode: remedy: upgrade the kernel ($upgrade), reboot and run again, or install $name-$version by hand" >&2
  exit 1; }
[ -e "/lib/modules/$release/build/Makefile" ] || {
  echo "gpunode: $name $version is installed, and /lib/modules/$release/build leads to no headers" >&2
  echo "gpunode: remedy: install $name-$version again (\`rpm -V $name-$version\` on the node), and run again" >&2
  exit 1; }
