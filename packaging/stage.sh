#!/bin/sh
# stage.sh BINARIES FOLDER DATE: collects what all packages have, from built programs.
#
# BINARIES has the programs fairgate and fairgate-sim; FOLDER is made again; DATE (2026-11-18) is that of the man pages.
#   FOLDER/bin, man, completions, doc    for the archive and the Debian package
#   FOLDER/image                         the folder from which packaging/Containerfile builds
set -eu
binaries=$1
folder=$2
date=$3
root=$(cd "$(dirname "$0")/.." && pwd)
umask 022

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/completions" "$folder/doc/examples" "$folder/image/data"
for program in fairgate fairgate-sim; do
    cp "$binaries/$program" "$folder/bin/$program"
    # A program of the profile `dist` has no symbols. Others have, and would make an image of hundreds of megabytes.
    strip "$folder/bin/$program"
    cp "$folder/bin/$program" "$folder/image/$program"
done

fairgate="$folder/bin/fairgate"
"$fairgate" manual --date "$date" "$folder/man"
"$fairgate" completions bash > "$folder/completions/fairgate"
"$fairgate" completions zsh > "$folder/completions/_fairgate"
"$fairgate" completions fish > "$folder/completions/fairgate.fish"

cp "$root/README.md" "$root/CHANGELOG.md" "$root/LICENSE-APACHE" "$root/LICENSE-MIT" "$folder/doc/"
cp "$root/packaging/THIRD-PARTY-LICENCES.txt" "$folder/doc/"
cp "$root/examples/fairgate.yaml" "$root/packaging/prometheus/rules.yml" "$folder/doc/examples/"
cp "$root"/packaging/grafana/*.json "$folder/doc/examples/"
cp -R "$folder/doc" "$folder/image/doc"
find "$folder" -type f -exec chmod 644 {} +
chmod 755 "$folder"/bin/* "$folder"/image/fairgate "$folder"/image/fairgate-sim

# The changelog of the Debian package, which names the version and points to the real one.
version=${FAIRGATE_VERSION:-0.1.0}
cat > "$folder/changelog" <<CHANGES
fairgate ($version) unstable; urgency=medium

  * See /usr/share/doc/fairgate/README.md and the changelog of the project.

 -- Fairgate maintainers <maintainers@fairgate.invalid>  $(LC_ALL=C date -u -d "$date" '+%a, %d %b %Y %H:%M:%S +0000')
CHANGES
