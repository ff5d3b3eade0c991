#!/bin/sh
# archive.sh STAGE OUTPUT VERSION EPOCH: packs the programs with man pages, completions and licences. The same files give the
# same bytes: times are EPOCH, names are sorted, and the owner is nobody in particular.
set -eu
name=fairgate-$3-$(uname -m)-linux-gnu
tar --create --directory "$1" --sort=name --mtime=@"$4" --owner=0 --group=0 --numeric-owner --format=gnu \
    --transform "s,^,$name/," bin man completions doc | gzip --no-name --best > "$2/$name.tar.gz"
