# A function: evr ARGUMENT... has rpm print [EPOCH:]VERSION-RELEASE of packages.

evr() { rpm -q --qf '%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n' "$@" 2>/dev/null; }
