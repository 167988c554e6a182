#!/usr/bin/env bash
# Writes jars.txt of each version: all that its pom.xml needs, by path below https://repo1.maven.org/maven2/, with its
# SHA-256. Run it after a change of a pom.xml, look at what has changed, and commit both.
set -euo pipefail
cd "$(dirname "$0")"

for version in v2 v3; do
	paths=$(mktemp)
	mvn -q -B -f "$version/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath \
		-Dmdep.outputFile="$paths"
	tr ':' '\n' <"$paths" | while read -r jar || [[ -n $jar ]]; do
		echo "$(sha256sum "$jar" | cut -d' ' -f1)  ${jar#*/repository/}"
	done >"$version/jars.txt"
	rm "$paths"
done
