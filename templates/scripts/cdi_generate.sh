# Makes the CDI specification $target, on top of cdi.sh.
# Runtimes read each .yaml of the target's folder, and for some GPUs nvidia-ctk writes several: drafts are next to that
# folder, on the same file system. What a run that was cut off left there goes with the next
# (gpunode/system/interrupted.sh).

# shellcheck disable=SC2154  # set by the caller

folder=$(dirname "$target"); mkdir -p "$folder"
work=$(mktemp -d "$folder/../.gpunode-cdi.$$.XXXXXX"); trap 'rm -rf "$work"' EXIT
# Of a driver below a $root of its own it names the devices at /dev, where that root shows none (its dev may be empty).
set --
[ "${root:=/}" = / ] || set -- --driver-root="$root"
[ "$root" = / ] || [ -e "$root/dev/nvidiactl" ] || set -- "$@" --dev-root=/
nvidia-ctk cdi generate "$@" --output="$work/nvidia.yaml" >&2
{ printf '%s\n' "$mark"; cat "$work/nvidia.yaml"; } > "$work/marked"
proven "$work/marked"
case " $stale " in *" $target "*) ;; *)
  # An empty one is what a failed `nvidia-ctk cdi generate > FILE` leaves: nothing is lost with it.
  if [ -s "$target" ] && [ "$(head -n 1 "$target")" != "$mark" ]; then
    echo "gpunode: cause: $target was written between the reading and the change; nothing was changed" >&2
    echo "gpunode: remedy: run again; where it is of another kind than nvidia.com/gpu, move it away first" >&2; exit 1
  fi;;
esac
chmod 644 "$work/marked"; sync "$work/marked"
aside
mv -fT "$work/marked" "$target"
