# Runs the main job on this machine's GPU: `bash tests/hardware/run.sh CARRIED [FOLDER]`, as root.
#
# CARRIED is what carry.py packed. It takes eight minutes at most and prints each step. Nothing of this machine is
# touched but the GPU's compute mode, which is put back. What was seen goes into docs/hardware.md, unless the GPU is
# SIMULATED; FOLDER gets result.json and the page, too.
# Exit status 0: all is good; 1: a step failed; 69: not possible on this machine, with the reason.

set -u
here=$(cd "$(dirname "$0")" && pwd)
carried=${1:?the file that tests.hardware.carry made}
# The job ends itself in this time; what hangs all the same is ended later.
GPUNODE_SECONDS=${GPUNODE_SECONDS:-420}; export GPUNODE_SECONDS
# On the disk, unlike what is written later, which goes into memory.
work=$(TMPDIR=/var/tmp mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM PIPE
mkdir "$work/unpacked"
python=
for candidate in python3 /opt/*/.venv/bin/python3 python3.14 python3.13 python3.12 python3.11; do
  found=$(command -v "$candidate") || continue
  "$found" "$here/unpack.py" "$carried" "$work/unpacked" 2> "$work/why"
  case "$?" in 0) python=$found; break;; 3) ;; *) cat "$work/why" >&2;; esac
done
[ -n "$python" ] || { echo "not possible here: $(tail -n 1 "$work/why")" >&2; exit 69; }
modules=$work/unpacked/tests/hardware
mkdir -p "$modules"
cp "$here/../__init__.py" "$work/unpacked/tests/"
cp "$here/__init__.py" "$here/main_job.py" "$here/machine.py" "$here/nvml_compared.py" "$modules/"
timeout --foreground -k 30 "$((GPUNODE_SECONDS + 30))" \
  sh "$here/boot.sh" "$work" "$python" /opt/main-job/tests/hardware/main_job.py
status=$?
if [ -f "$work/unpacked/result.json" ]; then
  page=$here/../../docs/hardware.md
  "$python" "$here/page.py" "$work/unpacked/result.json" "$page" || status=1
  [ -z "${2:-}" ] || cp "$work/unpacked/result.json" "$page" "$2/"
fi
exit "$status"
