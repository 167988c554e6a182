package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	// Version is that of the server.
	Version = "3.9.5"
	central = "https://repo.maven.apache.org/maven2/"
)

// jar is a file on Maven Central, pinned by its SHA-256.
type jar struct {
	group, artifact, version string
	sum                      string
}

func (j jar) file() cache.File {
	name := j.artifact + "-" + j.version + ".jar"
	return cache.File{
		Name: name, SHA256: j.sum,
		URL: central + path.Join(strings.ReplaceAll(j.group, ".", "/"), j.artifact, j.version, name),
	}
}

// serverJars are the server, and what it needs at run time: some of that its pom names only for those who compile it.
func serverJars() []jar {
	const netty, nettyVersion = "io.netty", "4.1.130.Final"
	return []jar{
		{"org.apache.zookeeper", "zookeeper", Version, "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0"},
		{"org.apache.zookeeper", "zookeeper-jute", Version, "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a"},
		{"commons-io", "commons-io", "2.17.0", "4aa4ca48f3dfd30b78220b7881d8cb93eac4093ec94361b6befa9487998a550b"},
		{"io.dropwizard.metrics", "metrics-core", "4.1.12.1", "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9"},
		{netty, "netty-buffer", nettyVersion, "00a522b67ea35cb7b4dd9cf27f85c6c58f5e306785aa045302e5f6b2d4944a87"},
		{netty, "netty-codec", nettyVersion, "52636bc29bd62120b97bbe5d1d21eab9b1cb2bef8efbb54d2221c5f3fa08d8cd"},
		{netty, "netty-common", nettyVersion, "53921f28dd5a352b1bed0e1cbcc54d013dc60ffebeae9b2b1e53eabef317e581"},
		{netty, "netty-handler", nettyVersion, "98c78ec187ca30a4b9775bf6f632f5c9929db6bf06a60e6971f945813880ca0f"},
		{netty, "netty-resolver", nettyVersion, "48c5b218a89d184e1b601d46433957f515fcefdb4464182b1348bce4f5a18f35"},
		{netty, "netty-transport", nettyVersion, "1bf573266d271f856705a9984d25449c56a1d73c02a16af12033ceccfe555dbb"},
		{netty, "netty-transport-classes-epoll", nettyVersion, "1c352508d70aca1ccc3068daac907ad1e9d8dc68b07148d57426730bf0d0c8b6"},
		{netty, "netty-transport-native-unix-common", nettyVersion, "cf5efc4168597d7cd14695b469418cac2a1134533f9a0c82ef0538d796fd39e1"},
		{"org.slf4j", "slf4j-api", "2.0.13", "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9"},
		{"org.slf4j", "slf4j-simple", "2.0.13", "3153fe1d689cffb94f1530b58470c306685ba68844de8857116e3b6ebb81d9f7"},
		{"org.xerial.snappy", "snappy-java", "1.1.10.5", "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b"},
	}
}

// Files are what is needed to run servers and readers.
type Files struct {
	// Java is the program.
	Java string
	// Server and Reader are class paths.
	Server, Reader string
}

// Get finds Java and downloads the jars that are not in the cache, and tells log about it.
func Get(ctx context.Context, log io.Writer) (Files, error) {
	java, err := exec.LookPath("java")
	if err == nil {
		// The readers are compiled when they are run, which only a JDK can.
		_, err = exec.LookPath("javac")
	}
	if err != nil {
		return Files{}, registries.Missing(fmt.Errorf("ZooKeeper and its readers need a JDK, 17 or newer, in PATH: %w", err))
	}
	server, err := download(ctx, log, serverJars())
	if err != nil {
		return Files{}, err
	}
	reader, err := download(ctx, log, readerJars())
	return Files{Java: java, Server: server, Reader: server + ":" + reader}, err
}

// download returns the class path of the jars.
func download(ctx context.Context, log io.Writer, jars []jar) (string, error) {
	progress := cache.NewProgress(log, "registries")
	paths := make([]string, len(jars))
	errs := make([]error, len(jars))
	for i, j := range jars {
		paths[i], errs[i] = cache.Download(ctx, progress, j.file())
	}
	return strings.Join(paths, ":"), registries.Missing(errors.Join(errs...))
}
