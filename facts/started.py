"""When a unit of systemd's started, for the probes that compare that with the times of files."""

from __future__ import annotations

# show_unit UNIT ARGUMENTS: what `systemctl show` prints, its timestamps with microseconds and in UTC as far as systemd
# can: 246 and older know no such option, up to 250 `show` does not heed it, and prints whole seconds.
# seconds TIMESTAMP: since the epoch. Of whole seconds it is the end: what was written in the second in which a daemon
# started may have been there before, and whoever took it for newer would restart the daemon in each run.
STARTED = r"""
show_unit() {
  LC_ALL=C TZ=UTC systemctl show "$@" --timestamp=us+utc 2>/dev/null || LC_ALL=C TZ=UTC systemctl show "$@"
}
seconds() {
  case "$1" in
    *.*) date -d "$1" +%s.%6N;;
    *) date -d "$1" +%s.999999;;
  esac
}
"""
