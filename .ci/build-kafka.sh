#!/bin/bash
# Builds an Apache Kafka image from a directory of jars and this host's own JRE with `docker import`.
# usage: build-kafka.sh IMAGE LIBS_DIR [JAVA_HOME]
set -euo pipefail
image=$1 libs=$2
java_home=${3:-$(readlink -f "$(command -v java)" | sed 's|/bin/java$||')}
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

{
	printf '%s\n' /bin/{sh,cat,chmod,cp,date,echo,env,hostname,id,kill,ls,mkdir,ps,rm,sed,sleep,touch} "$java_home/bin/java"
	find -L "$java_home/lib" "$java_home/conf" -type f ! -name src.zip ! -name ct.sym \
		! -name libawt_xawt.so ! -name libatk-wrapper.so ! -name libsplashscreen.so 2>/dev/null
} >"$tmp/files"
grep -E '^/bin/|/bin/java$|\.so$' "$tmp/files" | { xargs ldd 2>/dev/null || true; } |
	awk '$2=="=>" && $3 ~ /^\// {print $3} $1 ~ /^\/.*ld-linux/ {print $1}' | grep -v "^$java_home" >"$tmp/libraries"
sort -u "$tmp/files" "$tmp/libraries" | sed 's|^/||' >"$tmp/list"

x=$tmp/extra
mkdir -p "$x"/{etc/kafka/docker,etc/kafka/secrets,usr/local/bin,tmp,mnt/shared/config,opt/kafka/config,var/lib/kafka/data}
chmod 1777 "$x/tmp"
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$x/etc/passwd"
printf 'root:x:0:\n' >"$x/etc/group"
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$x/etc/nsswitch.conf"
cp "$here"/images/kafka/{server.properties,log4j2.yaml,tools-log4j2.yaml} "$x/etc/kafka/docker/"
cp "$here/images/kafka/entrypoint" "$x/usr/local/bin/kafka-run"

tar -C / --dereference --hard-dereference --owner=0 --group=0 -cf - -T "$tmp/list" -C "$x" . \
	-C "$(dirname "$libs")" --transform "s|^$(basename "$libs")|opt/kafka/libs|" "$(basename "$libs")" |
	docker import \
		--change "ENV PATH=/usr/local/bin:$java_home/bin:/usr/bin:/bin JAVA_HOME=$java_home LANG=C.UTF-8" \
		--change 'CMD ["kafka-run"]' --change 'EXPOSE 9092' - "$image"
