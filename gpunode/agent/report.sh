# Prints agent=yes where an agent is installed, and report=BASE64 of what it says of its last pull. Takes CONFIG and
# REPORT, their paths.

[ ! -e "$CONFIG" ] || echo agent=yes
[ ! -f "$REPORT" ] || echo "report=$(file_base64 "$REPORT")"
