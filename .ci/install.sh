# Part of .ci/run: what the machine needs, the Docker daemon, the images.
# shellcheck shell=bash disable=SC2012,SC2034,SC2154

golangci_version=v2.15.0
govulncheck_version=v1.9.0
apidiff_version=v0.0.0-20261113113407-e3970619a1a4

# install_packages: of Debian, only those that are missing; of Go's tools, those of the right version
install_packages() {
	local need=()
	command -v docker >/dev/null && command -v dockerd >/dev/null || need+=(docker.io) # brings containerd, runc, iptables
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || need+=(postgresql)
	command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || need+=(pgbouncer)
	command -v promtool >/dev/null || need+=(prometheus) # it is not started
	command -v java >/dev/null || need+=(openjdk-17-jre-headless)
	command -v mvn >/dev/null || need+=(maven)
	command -v chromium >/dev/null || need+=(chromium fonts-liberation) # the console is tested in it
	command -v npm >/dev/null || need+=(npm)
	command -v gcc >/dev/null || need+=(gcc libc6-dev) # the race detector links with it
	if [ ${#need[@]} -gt 0 ]; then
		echo "apt-get install ${need[*]}"
		apt-get update -qq
		# RUNLEVEL: nothing that is installed is started
		RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >"$log/apt.log" 2>&1 || {
			cat "$log/apt.log"
			return 1
		}
	fi
	message_catalogues
	[ -d "$work/kafka-libs" ] || kafka_jars
	[ -d "$work/registry" ] || registry_jars
	[ -d "$work/axe" ] || axe_core
}

# message_catalogues: of PostgreSQL in Japanese, which images of Debian leave out of its packages
message_catalogues() {
	local packages
	compgen -G '/usr/share/locale/ja/LC_MESSAGES/postgres-*.mo' >/dev/null && return
	packages=$(dpkg -S /usr/lib/postgresql/*/bin/postgres | cut -d: -f1)
	# shellcheck disable=SC2086
	RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --reinstall -o 'DPkg::Options::=--path-include=/usr/share/locale/ja/*' $packages >>"$log/apt.log" 2>&1 || {
		cat "$log/apt.log"
		return 1
	}
}

# kafka_jars: into a directory that is there only when it is complete, and when each jar is the one whose digest is in jars.sha256. After a
# change of pom.xml: cd .work/kafka-libs.part && sha256sum *.jar >../../.ci/images/kafka/jars.sha256, and look at what has changed
kafka_jars() {
	rm -rf "$work/kafka-libs.part"
	mvn -q -B --strict-checksums -f "$ci/images/kafka/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
		-DoutputDirectory="$work/kafka-libs.part" >"$log/maven.log" 2>&1 || {
		cat "$log/maven.log"
		return 1
	}
	(cd "$work/kafka-libs.part" && sha256sum --check --strict --quiet "$ci/images/kafka/jars.sha256") || return 1
	if [ "$(find "$work/kafka-libs.part" -name '*.jar' | wc -l)" != "$(wc -l <"$ci/images/kafka/jars.sha256")" ]; then
		echo "there are jars whose digests are not in .ci/images/kafka/jars.sha256"
		return 1
	fi
	mv "$work/kafka-libs.part" "$work/kafka-libs"
}

registry_version=2.6.13.Final
registry_sha256=3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba

# registry_jars: Apicurio's schema registry, for compat/codecs, into a directory that is there only when it is complete
registry_jars() {
	local name=apicurio-registry-app-$registry_version-all.tar.gz
	rm -rf "$work/registry.part"
	mkdir "$work/registry.part"
	mvn -q -B --strict-checksums org.apache.maven.plugins:maven-dependency-plugin:3.7.1:copy -Dartifact=io.apicurio:apicurio-registry-app:$registry_version:tar.gz:all \
		-DoutputDirectory="$work/registry.part" >"$log/registry.log" 2>&1 || {
		cat "$log/registry.log"
		return 1
	}
	(cd "$work/registry.part" && echo "$registry_sha256  $name" | sha256sum --check --strict --quiet && tar xzf "$name" && rm "$name") || return 1
	mv "$work/registry.part" "$work/registry"
}

axe_version=4.14.1
axe_sha256=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c

# axe_core: the automatic check of pages for people with disabilities, for compat/console, into a directory that is there only when it is complete
axe_core() {
	rm -rf "$work/axe.part"
	mkdir "$work/axe.part"
	(cd "$work/axe.part" && npm pack --silent "axe-core@$axe_version" >/dev/null && tar xzf "axe-core-$axe_version.tgz" --strip-components=1 package/axe.min.js &&
		echo "$axe_sha256  axe.min.js" | sha256sum --check --strict --quiet) || return 1
	mv "$work/axe.part" "$work/axe"
}

# go_tool NAME PACKAGE VERSION: the path of the tool in that version, installed if the user has none
go_tool() {
	local dir
	for dir in "$work/bin" "$(go env GOBIN)" "$(go env GOPATH)/bin"; do
		if [ -n "$dir" ] && go version -m "$dir/$1" 2>/dev/null | grep -qE "^[[:space:]]+mod[[:space:]].*[[:space:]]$3([[:space:]]|$)"; then
			echo "$dir/$1"
			return
		fi
	done
	echo "go install $2@$3" >&2
	GOBIN="$work/bin" go install "$2@$3" >&2
	echo "$work/bin/$1"
}

dockerd=''

# start_dockerd: one of our own if none answers
start_dockerd() {
	docker version >/dev/null 2>&1 && return
	rm -f /var/run/docker.pid # a stale one stops dockerd
	setsid dockerd >"$log/dockerd.log" 2>&1 </dev/null &
	dockerd=$!
	for _ in $(seq 300); do
		docker version >/dev/null 2>&1 && return
		kill -0 "$dockerd" 2>/dev/null || break
		sleep 0.1
	done
	tail -20 "$log/dockerd.log"
	failed='dockerd does not answer'
	exit 1
}

stop_dockerd() {
	[ -n "$dockerd" ] || return 0
	kill "$dockerd" 2>/dev/null
	wait "$dockerd" 2>/dev/null
	dockerd=''
}

# build_images: from the machine's own files, so that no registry is needed; a caller can name others
build_images() {
	if [ -z "${EINMAL_POSTGRES_IMAGE-}" ]; then
		docker image rm "$(postgres_image)" >/dev/null 2>&1 || true # else the old one stays without a name
		"$ci/build-postgres.sh" "$(postgres_image)"
	fi
	if [ -z "${EINMAL_KAFKA_IMAGE-}" ]; then
		docker image rm "$(kafka_image)" >/dev/null 2>&1 || true
		"$ci/build-kafka.sh" "$(kafka_image)" "$work/kafka-libs"
	fi
	docker images
}

postgres_image() { echo "einmal-ci/postgres:$(ls /usr/lib/postgresql | sort -V | tail -1)"; }
kafka_image() { echo "einmal-ci/kafka:$(sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$ci/images/kafka/pom.xml")"; }

# name_images: the tests and the demo start these; with the variables set, nothing else will do
name_images() {
	export EINMAL_POSTGRES_IMAGE=${EINMAL_POSTGRES_IMAGE:-$(postgres_image)}
	export EINMAL_KAFKA_IMAGE=${EINMAL_KAFKA_IMAGE:-$(kafka_image)}
}

# remove_containers: those whose process is gone; another run on this daemon keeps its own
remove_containers() {
	local id
	docker version >/dev/null 2>&1 || return 0
	for id in $(docker ps -aq --filter label=einmal.servers); do
		kill -0 "$(docker inspect -f '{{index .Config.Labels "einmal.servers.pid"}}' "$id")" 2>/dev/null || docker rm -fv "$id" >/dev/null
	done
}
