#!/bin/bash
# bash tests/hardware/run.sh CARRIED [FOLDER]: the main job on this machine's GPU, with what carry.py packed into CARRIED.
#
# It takes root and eight minutes at most; nothing of this machine but the GPU's compute mode is touched, and that is put
# back. What was seen goes into docs/hardware.md, unless the GPU is SIMULATED; FOLDER gets result.json and the page, too.
# Exit status 0: all is good; 1: a step failed; 69: not possible on this machine, with the reason.

set -u
here=$(cd "$(dirname "$0")" && pwd)
carried=${1:?the file that tests.hardware.carry made}
# Left on the disk: what is written later goes into memory.
work=$(TMPDIR=/var/tmp mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
python=
for candidate in python3 /opt/*/.venv/bin/python3 python3.14 python3.13 python3.12 python3.11; do
  found=$(command -v "$candidate") || continue
  mkdir -p "$work/unpacked"
  if [ -d "$carried" ]; then cp -a "$carried/." "$work/unpacked/"; fi
  [ -f "$work/unpacked/about.json" ] || "$found" - "$carried" "$work/unpacked" <<-'END' || exit 1
	import sys, tarfile
	with tarfile.open(sys.argv[1]) as archive:
	    archive.extractall(sys.argv[2], filter="tar")
	END
  if "$found" - "$work/unpacked/about.json" <<-'END'
	import json, sys
	sys.exit(json.load(open(sys.argv[1]))["python"] != f"{sys.version_info[0]}.{sys.version_info[1]}")
	END
  then python=$found; break; fi
done
if [ -z "$python" ]; then
  echo "not possible here: no Python like that of the carried wheels: $(cat "$work/unpacked/about.json")" >&2; exit 69
fi
cp "$here"/main_job.py "$here"/machine.py "$here"/nvml_compared.py "$work/unpacked/"
timeout -k 20 "${SECONDS_ALLOWED:-460}" sh "$here/boot.sh" "$work" "$python" /opt/main-job/main_job.py
status=$?
[ "$status" != 124 ] || echo "stopped: it took more than ${SECONDS_ALLOWED:-460} s" >&2
if [ -f "$work/unpacked/result.json" ]; then
  "$python" "$here/page.py" "$work/unpacked/result.json" "$here/../../docs/hardware.md" || status=1
  if [ -n "${2:-}" ]; then cp "$work/unpacked/result.json" "$here/../../docs/hardware.md" "$2/"; fi
fi
exit "$status"
