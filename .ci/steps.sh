# Part of .ci/run: its steps, in their order. Each ends with a status other than 0 if what it checks does not hold.
# shellcheck shell=bash disable=SC2034,SC2154

# compile: what the steps need, in the background
compile() {
	go mod download
	go build ./...
	go build -o "$work/bin/" ./internal/servers/cmd/servers ./internal/cmd/testreport
	go_tool golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$golangci_version"
	go_tool govulncheck golang.org/x/vuln/cmd/govulncheck "$govulncheck_version"
	go_tool apidiff golang.org/x/exp/cmd/apidiff "$apidiff_version"
	go vet ./...
	touch "$work/compiled"
}

# wait_for PID LOG: a job of the main shell, which a subshell cannot ask for its status
wait_for() {
	while kill -0 "$1" 2>/dev/null; do sleep 0.2; done
	cat "$2"
	[ -f "$work/compiled" ]
}

# readme_commands: those that README.md tells a newcomer to run, one a line
readme_commands() {
	sed -n '/<!-- commands -->/,/<!-- \/commands -->/p' README.md | grep -vE '^(<!--|```|[[:space:]]*(#|$))'
}

# as_written COMMAND: a command of README.md with the images named, so that Docker has to serve the database
as_written() {
	local servers rc=0
	servers=$(new_servers_log)
	export EINMAL_SERVERS_LOG="$servers" EINMAL_KAFKA_JARS="$work/kafka-libs"
	{
		timeout 2400 env -u EINMAL_CRASH_KILLS -u EINMAL_CHURN -u EINMAL_LOST_CRASHES -u EINMAL_LOST_FAILOVERS bash -c "$1" & # a process group of its own, which finish ends
		echo $! >"$work/group"
		wait $!
	} 2>&1 | tee "$work/output" || rc=$?
	rm -f "$work/group"
	case $1 in
	*'go test'*) [ "$rc" = 0 ] || again "$work/output" ;;
	*) [ "$rc" = 0 ] || return "$rc" ;;
	esac
	case $1 in
	*'go test'*)
		summary "$servers" | tee "$work/served"
		[ -z "$(grep database "$servers" | grep -v "by Docker, image $EINMAL_POSTGRES_IMAGE" | tee /dev/stderr)" ] || fail 'a database was not that of Docker'
		;;
	*)
		sed -nE 's/^(broker|database) +/\1 /p' "$work/output" >"$work/served"
		;;
	esac
	grep -q "^database.*by Docker, image $EINMAL_POSTGRES_IMAGE" "$work/served" || fail 'no database by Docker was used'
}

# again OUTPUT FLAG... : runs the tests that failed three times more, alone, when all else has ended. Many tests have bounds in time, which
# a machine that runs ten of them at once may exceed; a fault fails here too. What passes is told at the end of the run. A data race, a
# panic, a time-out and what does not compile are never run again.
again() {
	local output=$1 package tests
	shift
	! grep -qE '^(panic: |fatal error: |WARNING: DATA RACE|testreport: (skipped|did not|nothing|no test))|race detected|\[(build|setup) failed\]' "$output" || return 1
	! grep -E '^(skipped|did not end|nothing was skipped|no test ran)' "$output" || return 1
	failed_tests "$output" >"$work/failed"
	[ -s "$work/failed" ] || return 1
	while read -r package tests; do
		[ -n "$tests" ] || return 1
		printf -- '\n--- again: %s %s\n' "$package" "$tests"
		go test -count=3 "$@" -run "^($tests)\$" "$package" </dev/null || return 1
		echo "$package $tests" >>"$work/again"
	done <"$work/failed"
}

# failed_tests OUTPUT: a line for each package that failed, with the names of its tests as a regular expression, from what go test or
# testreport said
failed_tests() {
	if grep -q '^testreport: ' "$1"; then
		sed -nE 's/^(testreport: )?failed: //p' "$1" | awk '{ sub("/.*", "", $2); packages[$1]; if ($2 != "" && !(($1, $2) in seen)) { seen[$1, $2]; tests[$1] = tests[$1] (tests[$1] == "" ? "" : "|") $2 } }
			END { for (p in packages) print "./" p, tests[p] }'
	else
		awk '/^--- FAIL: / { tests = tests (tests == "" ? "" : "|") $3 }
			/^ok[ \t]/ { tests = "" }
			/^FAIL[ \t]+[^ \t]+[ \t]/ { print $2, tests; tests = "" }' "$1"
	fi
}

# new_servers_log: a new name each time, since the cache of test results knows the variable's value
new_servers_log() { mktemp "$work/log/servers-XXXXXX"; }

# summary FILE: role, origin and how many test binaries used it
summary() { cut -f2,3 "$1" | sort | uniq -c | awk -F'\t' '{split($1, a, " "); print a[2] " " $2 " (" a[1] " test binaries)"}'; }

fail() {
	echo "FAIL: $1"
	return 1
}

# as_nobody: the finders of servers where there is no Docker and the user is not root
as_nobody() {
	local dir
	dir=$(mktemp -d)
	chmod 755 "$dir"
	go test -c -o "$dir/servers.test" ./internal/servers
	mkdir -m 700 "$dir/home"
	chown nobody: "$dir/home"
	# the image variables would demand Docker
	(cd "$dir/home" && env -u EINMAL_POSTGRES_IMAGE -u EINMAL_KAFKA_IMAGE HOME="$dir/home" TMPDIR=/tmp \
		setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups "$dir/servers.test" -test.v -test.run 'Order|Die|Durable|Instance|Replica') |
		tee "$work/output" | grep -E '^ *(---|PASS|FAIL|ok)|_test\.go'
	rm -rf "$dir"
	grep -q '^    --- PASS: TestOrder/local_programs_without_Docker' "$work/output" || fail 'local programs did not serve'
	grep -q '^--- PASS: TestReplica' "$work/output" || fail 'a user without rights could not run a primary and its replica'
	grep -q '^    --- PASS: TestOrder/fetched_binaries_last' "$work/output" || fail 'fetched binaries did not serve'
}

formatted() {
	local files
	files=$(gofmt -l .)
	[ -z "$files" ] || fail "gofmt would change: $files"
}

modules() {
	go mod tidy -diff
	go mod verify
}

lint() { "$(go_tool golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$golangci_version")" run ./...; }

# vulnerabilities: a network without the database of vulnerabilities is no fault of the code, and is told at the end of the run; with
# EINMAL_REQUIRE_VULNDB=1, as in the workflow, it fails
vulnerabilities() {
	local tool rc=0
	tool=$(go_tool govulncheck golang.org/x/vuln/cmd/govulncheck "$govulncheck_version")
	"$tool" ./... >"$work/output" 2>&1 || rc=$?
	cat "$work/output"
	if [ "$rc" = 1 ] && grep -qE 'fetching vulnerabilities: Get "https://vuln.go.dev/.*(dial|lookup|timeout|deadline|refused|unreachable|EOF|TLS|proxyconnect)' "$work/output"; then
		echo 'https://vuln.go.dev cannot be reached' >"$work/skipped"
		[ "${EINMAL_REQUIRE_VULNDB-}" != 1 ] || fail 'nobody looked for known vulnerabilities: https://vuln.go.dev cannot be reached' || return 1
		echo 'NOT RUN: govulncheck needs the data at https://vuln.go.dev, which cannot be reached from here'
		return 0
	fi
	return "$rc"
}

# api: CHANGELOG.md names, under Unreleased, each exported name that was removed or changed since the last version in a way that what uses it
# no longer compiles. Before the first version .ci/api-base says from which commit on. From version 1 on no such change may be.
api() {
	local base dir tool module=github.com/einmal-go/einmal name rc=0
	base=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || cat "$ci/api-base")
	if ! git cat-file -e "$base^{commit}" 2>/dev/null; then
		echo "this clone does not have $base" >"$work/skipped"
		return 0
	fi
	tool=$(go_tool apidiff golang.org/x/exp/cmd/apidiff "$apidiff_version")
	dir=$(mktemp -d)
	git worktree add -q --detach "$dir/base" "$base"
	(cd "$dir/base" && "$tool" -m -w "$dir/old" "$module")
	git worktree remove --force "$dir/base"
	"$tool" -m -w "$dir/new" "$module"
	"$tool" -m "$dir/old" "$dir/new" 2>/dev/null | tee "$work/output"
	"$tool" -m -incompatible "$dir/old" "$dir/new" 2>/dev/null | grep '^- ' | grep -vE '^- (\./|package [^:]*/)(examples|cmd|internal)/' >"$dir/broken" || true
	rm -f "$dir/old" "$dir/new"
	sed -n '/^## Unreleased/,/^## [^U]/p' CHANGELOG.md >"$dir/unreleased"
	while read -r name; do
		case $base in v[1-9]*) echo "since $base: $name" && rc=1 ;; esac
		# of "- ./outbox.(*Relay).Run: removed" and "- ./audit.Partition.End: removed" the name of the function or type
		name=$(sed -E 's#^- (package )?\.?/?##; s#:.*##; s#.*/##; s#^[a-z]*\.##; s#[(*)]##g; s#[.[].*##' <<<"$name")
		grep -qw -- "$name" "$dir/unreleased" || { echo "CHANGELOG.md says nothing of the change of $name" && rc=1; }
	done <"$dir/broken"
	return "$rc"
}

# alerts: the rules for Prometheus, with the tests of their thresholds
alerts() {
	promtool check rules docs/alerts/einmal.rules.yml
	promtool test rules docs/alerts/einmal.rules.test.yml docs/alerts/einmal.episodes.test.yml
}

benchmarks() {
	cd benchmarks || return
	go build ./...
	go vet ./...
	go mod tidy -diff
}

# compat: the module with the tests of other people's tools and libraries, on the servers of the run
compat() {
	# shellcheck source=/dev/null
	. "$work/servers.env"
	export EINMAL_REGISTRY_DIR="$work/registry" EINMAL_REQUIRE_REGISTRY=1
	export EINMAL_AXE="$work/axe/axe.min.js" EINMAL_REQUIRE_BROWSER=1
	cd compat || return
	go vet ./...
	go test ./...
	go mod tidy -diff
}

# service: the module of examples/service, on the servers of the run
service() {
	# shellcheck source=/dev/null
	. "$work/servers.env"
	cd examples/service || return
	go vet ./...
	"$(go_tool golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$golangci_version")" run ./...
	go test ./...
	go mod tidy -diff
}

# in_japanese: the suites of stores, tables and janitor on a PostgreSQL that speaks another language and writes times in another way
in_japanese() {
	local pid rc=0
	rm -f "$work/foreign.env"
	"$work/bin/servers" -foreign -env "$work/foreign.env" >"$log/foreign.log" 2>&1 </dev/null &
	pid=$!
	while [ ! -f "$work/foreign.env" ]; do
		kill -0 "$pid" 2>/dev/null || { cat "$log/foreign.log"; return 1; }
		sleep 0.2
	done
	# shellcheck source=/dev/null
	. "$work/foreign.env"
	go test -count=1 -skip "$in_japanese_not" ./dedupstore/*store ./dedupstore/internal/record ./deadletter/... ./idempotency/... ./janitor ./schema || rc=$?
	sed 's/^servers: /started /' "$log/foreign.log" >"$work/served"
	kill -TERM "$pid" && wait "$pid" || true
	return "$rc"
}

# in_japanese_not: tests of what is not the server's text, and take long
in_japanese_not='WithGroups|UnderKills|Pgbouncer|BesideAConsumer|Places|Model|OnSQLite|InSQLite|Killed|SIGKILL'

servers=''

# start_servers: PostgreSQL and Kafka through dockertest, until the end of the run
start_servers() {
	running='start PostgreSQL and Kafka'
	rm -f "$work/servers.env"
	"$work/bin/servers" -env "$work/servers.env" -lifetime 1h >"$log/servers.log" 2>&1 </dev/null &
	servers=$!
	while [ ! -f "$work/servers.env" ]; do
		if ! kill -0 "$servers" 2>/dev/null; then
			cat "$log/servers.log"
			servers=''
			failed='PostgreSQL and Kafka could not be started by Docker'
			exit 1
		fi
		sleep 0.2
	done
}

stop_servers() {
	[ -n "$servers" ] || return 0
	kill -TERM "$servers" 2>/dev/null
	wait "$servers" 2>/dev/null
	servers=''
}

# packages_at_once: more make tests with short time-outs wait for a processor
packages_at_once=$(nproc)

# on_real_servers_not: packages whose tests read the repository's files, and start nothing beside them
on_real_servers_not='/internal/(docs|arrows)$'

# on_real_servers: one run for the race detector and for the suite on real Kafka, in which no test may be skipped that .ci/skips does
# not list
on_real_servers() {
	local used rc=0
	# shellcheck source=/dev/null
	. "$work/servers.env"
	used=$(new_servers_log)
	export EINMAL_CRASH_KILLS=${EINMAL_CRASH_KILLS:-40} EINMAL_CHURN=${EINMAL_CHURN:-15s}
	export EINMAL_REQUIRE_KAFKA=1 EINMAL_REQUIRE_PGBOUNCER=1 EINMAL_REQUIRE_POSTGRES17=1 EINMAL_REQUIRE_INSTANCE=1 EINMAL_REQUIRE_PROMTOOL=1
	export EINMAL_SERVERS_LOG="$used" EINMAL_KAFKA_JARS="$work/kafka-libs"
	go list ./... | grep -vE "$on_real_servers_not" >"$work/packages"
	# shellcheck disable=SC2046
	go test -race -shuffle=on -timeout 20m -p "$packages_at_once" -json $(cat "$work/packages") |
		tee "$log/race.json" | "$work/bin/testreport" -skips "$ci/skips" -slowest 25 2>&1 | tee "$work/output" || rc=$?
	[ "$rc" = 0 ] || again "$work/output" -race -timeout 20m
	cat "$log/servers.log"
	summary "$used" | tee "$work/served"
	sed 's/^servers: /started /' "$log/servers.log" >>"$work/served"
	grep -q "^started PostgreSQL .* by Docker, image $EINMAL_POSTGRES_IMAGE" "$work/served" || fail 'PostgreSQL is not by Docker'
	grep -q "^started Apache Kafka by Docker, image $EINMAL_KAFKA_IMAGE" "$work/served" || fail 'Kafka is not by Docker'
	[ -z "$(grep database "$used" | grep -v 'from EINMAL_DATABASE_URL' | tee /dev/stderr)" ] || fail 'a database was another one'
	grep -q '^database PostgreSQL .* from EINMAL_DATABASE_URL' "$work/served" || fail 'no test used the database'
	grep -q '^broker Apache Kafka from EINMAL_KAFKA_BROKERS' "$work/served" || fail 'no test used the real Kafka'
	grep -q '^pooler in transaction mode' "$work/served" || fail 'no test used pgbouncer'
	grep -q '^instance PostgreSQL' "$work/served" || fail 'no test had a PostgreSQL of its own to kill'
	grep -q '^postgres17 PostgreSQL 17' "$work/served" || fail 'no test used PostgreSQL 17'
}
