#!/usr/bin/env bash
# Writes the jars.txt of each folder with a pom.xml: all that it needs, by path in https://repo1.maven.org/maven2/, with its
# SHA-256. Run it after a change of a pom.xml, look at what has changed, and commit both.
set -euo pipefail
cd "$(dirname "$0")"

for folder in nacos/server/v2 nacos/server/v3 java/dubbo nacos/spring zookeeper/spring servers/eureka-*; do
	paths=$(mktemp)
	mvn -q -B -f "$folder/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath \
		-Dmdep.outputFile="$paths"
	tr ':' '\n' <"$paths" | while read -r jar || [[ -n $jar ]]; do
		echo "$(sha256sum "$jar" | cut -d' ' -f1)  ${jar#*/repository/}"
	done >"$folder/jars.txt"
	rm "$paths"
done
