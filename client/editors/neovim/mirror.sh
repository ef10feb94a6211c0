#!/bin/sh
# Publish this plugin in a repository of its own, because lazy.nvim and luarocks take no folder of a repository.
# Usage: mirror.sh REMOTE [TAG]. Adds one commit with this folder, as HEAD has it, to the branch main of REMOTE.
set -eu
remote=${1:?usage: mirror.sh REMOTE [TAG]}
tag=${2:-}
cd "$(dirname "$0")"
folder=$(git rev-parse --show-prefix)
tree=$(git rev-parse "HEAD:${folder%/}")
head=$(git rev-parse --short HEAD)
parent=
if git fetch --quiet "$remote" refs/heads/main 2>/dev/null; then
    parent=$(git rev-parse FETCH_HEAD)
    if [ "$(git rev-parse "$parent^{tree}")" = "$tree" ]; then
        commit=$parent
    fi
fi
: "${commit:=$(git commit-tree "$tree" ${parent:+-p "$parent"} -m "editd ${tag:-$head}")}"
git push --quiet "$remote" "$commit:refs/heads/main" ${tag:+"$commit:refs/tags/$tag"}
echo "$remote has $commit"
