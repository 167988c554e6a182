package read

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rollcall-dev/rollcall/registry"
)

// Etcd reads what lies under a target, as gRPC's resolver does. The client is closed by closer.
func Etcd(endpoint, target, service string) (reader Reader, closer func() error, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: timeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return func(ctx context.Context) ([]registry.Entry, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		answer, err := client.Get(ctx, target+"/", clientv3.WithPrefix())
		if err != nil {
			return nil, fmt.Errorf("reading the registry: %w", err)
		}
		var entries []registry.Entry
		for _, kv := range answer.Kvs {
			var update struct {
				Addr     string
				Metadata map[string]string
			}
			if err := json.Unmarshal(kv.Value, &update); err != nil {
				return nil, fmt.Errorf("reading %s: %w", kv.Key, err)
			}
			host, port, err := net.SplitHostPort(update.Addr)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", kv.Key, err)
			}
			number, err := strconv.Atoi(port)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", kv.Key, err)
			}
			entries = append(entries, entry(service, host, number, update.Metadata, true))
		}
		return entries, nil
	}, client.Close, nil
}
