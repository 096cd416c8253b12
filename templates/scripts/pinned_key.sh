# Functions; it prints nothing but errors. Asks for primary_keys (gpunode/packages/keyring.sh).
#
# What was fetched is read by one program and trusted by another, which may find a second key where the first one ended
# at a stray byte: so no file is trusted as it came. It is imported into a home of its own, and of that the pinned key
# alone is exported.

keys_of() { primary_keys "$1" | sort | paste -s -d ' ' -; }

# pinned_key PRESENT OUT URL FINGERPRINT REPOSITORY [--armor]: write a repository's pinned key to OUT, in a folder of
# this program's alone: of the file PRESENT where that holds it alone, else of what is at URL
pinned_key() {
  fetched=$2.fetched; home=$2.home
  # Judged and read as a copy: who may write the file may write it between the two.
  if [ -f "$1" ]; then cp "$1" "$fetched"; fi
  if [ "$(keys_of "$fetched")" != "$4" ]; then
    curl --fail --silent --show-error --location --retry 2 --connect-timeout 10 --max-time 120 \
      --output "$fetched" "$3" 2> "$2.said" || {
      echo "gpunode: the key $3 could not be fetched: $(fetching_failed "$2.said" "$3")" >&2; exit 1; }
    got=$(keys_of "$fetched")
    if [ "$got" != "$4" ]; then
      if [ -n "$got" ]; then
        echo "gpunode: the key at $3 has the fingerprint $got but $4 is pinned; nothing was installed" >&2
        echo "gpunode: remedy: do not trust it blindly: only if the publisher names that fingerprint, set" \
          "repositories.$5.key_fingerprint" >&2
      else
        echo "gpunode: what $3 has is no key, and $4 is pinned: nothing was installed. It begins" \
          "with '$(head -c 60 "$fetched" | tr -cd ' -~')'" >&2
        echo "gpunode: remedy: correct repositories.$5.key_url; a page of a proxy or of a login instead of the key" \
          "looks the same (\`curl -L $3\` on the node)" >&2
      fi
      exit 1
    fi
  fi
  rm -rf "$home"; mkdir -m 700 "$home"
  # It says by its status what it thinks of the rest of the file, too; what counts is what it has then.
  gpg --homedir "$home" --batch --quiet --no-autostart --import "$fetched" 2> /dev/null || true
  gpg --homedir "$home" --batch --yes --quiet --no-autostart ${6:+"$6"} --output "$2" --export "$4"
  if [ "$(keys_of "$2")" != "$4" ]; then
    echo "gpunode: gpg cannot export the key $4 of $3; nothing was installed" >&2
    echo "gpunode: remedy: see what \`gpg --show-keys\` prints of that key on the node, install gnupg, and run" \
      "again" >&2
    exit 1
  fi
}
