#!/bin/sh
# images.sh STAGE OUTPUT VERSION EPOCH: builds both images on the base that FAIRGATE_IMAGE_BASE names, and packs each as an
# OCI archive. buildah's own archives have the time of their making. FAIRGATE_BUILD_OPTIONS are further options of buildah.
set -eu
tag=$(printf %s "$3" | tr + -)
for image in fairgate fairgate-sim; do
    buildah bud ${FAIRGATE_BUILD_OPTIONS:-} --isolation chroot --format docker --layers=false --timestamp "$4" --target "${image#fairgate-}" \
        --build-arg BASE="${FAIRGATE_IMAGE_BASE:-debian:bookworm-slim}" --tag "$image:$tag" -f packaging/Containerfile "$1/image"
    layout=$(mktemp -d)
    buildah push "$image:$tag" "oci:$layout:$image:$tag"
    tar --create --directory "$layout" --sort=name --mtime=@"$4" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu \
        --file "$2/$image-$3-image.tar" blobs index.json oci-layout
    rm -r "$layout"
done
