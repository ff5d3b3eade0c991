#!/bin/sh
# chart.sh CHART OUTPUT VERSION EPOCH: packs the chart as `helm package` does, with the release's version.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -RL "$1" "$work/fairgate"
sed -i "s/^version: .*/version: $3/; s/^appVersion: .*/appVersion: \"$(printf %s "$3" | tr + -)\"/" "$work/fairgate/Chart.yaml"
tar --create --directory "$work" --sort=name --mtime=@"$4" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu fairgate \
    | gzip --no-name --best > "$2/fairgate-chart-$3.tgz"
