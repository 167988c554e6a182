package read

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
)

// ZooKeeper reads the children of a service's node, as Curator does. The connection is closed by closer.
func ZooKeeper(endpoint, path, service string) (reader Reader, closer func(), err error) {
	conn, err := ConnectZooKeeper(endpoint)
	if err != nil {
		return nil, nil, err
	}
	return Curator(conn, path, service), conn.Close, nil
}

// ConnectZooKeeper returns a connection to one server.
func ConnectZooKeeper(endpoint string) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{endpoint}, 10*timeout, zk.WithLogger(silent{}))
	if err != nil {
		return nil, fmt.Errorf("connecting to ZooKeeper: %w", err)
	}
	go func() {
		for range events { // nothing hangs on them, and the connection would block
		}
	}()
	return conn, nil
}

// Curator reads the children of a service's node.
func Curator(conn *zk.Conn, path, service string) Reader {
	return func(ctx context.Context) ([]registry.Entry, error) {
		names, _, err := conn.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the registry: %w", err)
		}
		var entries []registry.Entry
		for _, name := range names {
			data, _, err := conn.Get(path + "/" + name)
			if errors.Is(err, zk.ErrNoNode) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading the registry: %w", err)
			}
			e, err := curatorEntry(data, service)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
			entries = append(entries, e)
		}
		return entries, ctx.Err()
	}
}

// curatorEntry decodes what Curator's JsonInstanceSerializer writes.
func curatorEntry(data []byte, service string) (registry.Entry, error) {
	var instance struct {
		Address string `json:"address"`
		Port    int    `json:"port"`
		Enabled *bool  `json:"enabled"`
		Payload struct {
			Metadata map[string]string `json:"metadata"`
		} `json:"payload"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(data, &instance); err != nil {
		return registry.Entry{}, fmt.Errorf("decoding the entry: %w", err)
	}
	meta := instance.Metadata
	if meta == nil {
		meta = instance.Payload.Metadata
	}
	// Spring Cloud has a status of its own.
	in := (instance.Enabled == nil || *instance.Enabled) && meta["instance_status"] != "OUT_OF_SERVICE"
	return entry(service, instance.Address, instance.Port, meta, in), nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}
