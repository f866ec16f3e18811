#!/bin/bash
# Builds a PostgreSQL image from this host's own PostgreSQL (Debian layout) with `docker import`: no registry, no builder.
# usage: build-postgres.sh IMAGE [MAJOR]
set -euo pipefail
image=$1
# shellcheck disable=SC2012
major=${2:-$(ls /usr/lib/postgresql | sort -V | tail -1)}
here=$(cd "$(dirname "$0")" && pwd)
lib=/usr/lib/postgresql/$major
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

bins=("$lib"/bin/{postgres,initdb,pg_ctl,psql,pg_isready,pg_dump,createdb,pg_controldata}
	/bin/{sh,cat,chmod,chown,cp,date,echo,env,id,kill,ls,mkdir,mv,ps,rm,sed,sleep,touch} /usr/bin/setpriv)
{
	printf '%s\n' "${bins[@]}"
	find "$lib/lib" -maxdepth 1 -name '*.so' ! -name 'llvmjit*'
	find "/usr/share/postgresql/$major" -type f ! -path '*/man/*'
	find /usr/lib/locale/C.utf8 -type f
	find /usr/share/zoneinfo \( -name posix -o -name right \) -prune -o -type f -print
} >"$tmp/files"
grep -E '/bin/|\.so$' "$tmp/files" | { xargs ldd 2>/dev/null || true; } |
	awk '$2=="=>" && $3 ~ /^\// {print $3} $1 ~ /^\/.*ld-linux/ {print $1}' >"$tmp/libraries"
sort -u "$tmp/files" "$tmp/libraries" | sed 's|^/||' >"$tmp/list"

mkdir -p "$tmp/extra"/{etc,usr/local/bin,docker-entrypoint-initdb.d} "$tmp/extra/tmp" "$tmp/extra/var/run/postgresql" "$tmp/extra/var/lib/postgresql/data"
chmod 1777 "$tmp/extra/tmp"
printf 'root:x:0:0:root:/root:/bin/sh\npostgres:x:999:999:postgres:/var/lib/postgresql:/bin/sh\n' >"$tmp/extra/etc/passwd"
printf 'root:x:0:\npostgres:x:999:\n' >"$tmp/extra/etc/group"
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$tmp/extra/etc/nsswitch.conf"
cp "$here/images/postgres/entrypoint" "$tmp/extra/usr/local/bin/docker-entrypoint.sh"

tar -C / --dereference --hard-dereference --owner=0 --group=0 -cf - -T "$tmp/list" -C "$tmp/extra" . |
	docker import \
		--change "ENV PATH=/usr/local/bin:$lib/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data LANG=C.UTF-8 PG_MAJOR=$major" \
		--change 'ENTRYPOINT ["docker-entrypoint.sh"]' --change 'CMD ["postgres"]' \
		--change 'EXPOSE 5432' --change 'VOLUME /var/lib/postgresql/data' \
		- "$image"
