// Package nacos runs real Nacos servers, of versions 2 and 3. The tests of test/registries/nacos prove the driver on them.
//
// Nacos publishes its server as an archive on GitHub, and only its client as jars. But others have published the server's
// modules on Maven Central under names of their own, and these make a server: server/v2 and server/v3 each hold a pom.xml
// that names the modules, a jars.txt with all that they need, pinned by checksum, and the class that starts them. Java
// compiles that when it runs it, so a JDK is needed.
package nacos
