"""Text that means something to a shell, a configuration format or a terminal, for the tests of hostile input."""

from __future__ import annotations

from hypothesis import strategies as st

CANARY = "canary"
# Each would make a file named `canary` in the current folder if a shell read it as its own text.
HOSTILE = (
    f"; touch {CANARY}",
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"' ; touch {CANARY} ; '",
    f'" ; touch {CANARY} ; "',
    f"\\' ; touch {CANARY} #",
    f"\n touch {CANARY}\n",
    f"\r\ntouch {CANARY}\r\n",
    f"| touch {CANARY}",
    f"&& touch {CANARY} &",
    f"> {CANARY}",
    f"<(touch {CANARY})",
    f"-exec touch {CANARY} ;",
    f"${{x:-$(touch {CANARY})}}",
    "--help",
    "-",
    "%n%s%h",
    "*",
    "~root",
    "!!",
    " ",
    "\t",
    "\x00",
    "\x1b[31m",
    "\x7f",
    "\u2028",
    "\u202e580",
    "５８０",
    "é",
    "\ud800",
    '"; Acquire::http::Proxy "http://evil',
    "\nExecStart=/bin/sh",
    "\nTrusted: yes",
    "\n\nTypes: deb\nURIs: http://evil/",
    "{distribution.__class__}",
    "{{ 7*7 }}",
)
hostile_text = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=60),
    st.text("$`'\"\\;&|<>(){}[]*?!#~%= \n\r\t-ax0", max_size=40),
    st.builds(lambda before, core, after: before + core + after, st.text(max_size=5), st.sampled_from(HOSTILE),
              st.text(max_size=5)),
)  # fmt: skip
