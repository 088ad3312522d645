// A client of failover.py by pgx: commits rows until its standard input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What failover.py reads, of one worker or of all.
type told struct {
	Committed int            `json:"committed"`
	Doubtful  int            `json:"doubtful"`
	Longest   []int64        `json:"longest_ms"`
	Errors    map[string]int `json:"errors"`
}

// Commits rows one after another, each by one transaction, until the context ends.
func commitRows(ended context.Context, number int, name string) told {
	ctx := context.Background()
	seen := told{Errors: map[string]int{}}
	var conn *pgx.Conn
	var last time.Time
	var longest time.Duration
	for ended.Err() == nil {
		err := func() (err error) {
			if conn == nil {
				// Hosts and ports are lists, tried in their order.
				where := fmt.Sprintf("host=%s port=%s sslmode=disable", os.Getenv("FAILOVER_HOSTS"), os.Getenv("FAILOVER_PORTS"))
				if conn, err = pgx.Connect(ctx, where); err != nil {
					conn = nil
					return err
				}
			}
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "insert into failover_row values ($1, $2, $3)", name, number, seen.Committed); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "update failover_account set n = n + 1 where id = $1", (seen.Committed*7+number)%100)
				return err
			})
		}()
		var server *pgconn.PgError
		switch {
		case err == nil:
		case errors.As(err, &server) && server.Code == "23505":
			// The commit whose answer did not come.
			seen.Doubtful++
		default:
			kind := "connection"
			if server != nil {
				kind = server.Code
			}
			seen.Errors[kind]++
			if conn != nil && conn.IsClosed() {
				conn = nil
			}
			continue
		}
		now := time.Now()
		if !last.IsZero() {
			longest = max(longest, now.Sub(last))
		}
		seen.Committed++
		last = now
	}
	if conn != nil {
		conn.Close(ctx)
	}
	seen.Longest = []int64{longest.Milliseconds()}
	return seen
}

func failover() {
	workers, _ := strconv.Atoi(os.Getenv("FAILOVER_WORKERS"))
	ended, end := context.WithCancel(context.Background())
	seen := make([]told, workers)
	var group sync.WaitGroup
	for number := range workers {
		group.Go(func() { seen[number] = commitRows(ended, number, os.Getenv("FAILOVER_NAME")) })
	}
	io.Copy(io.Discard, os.Stdin)
	end()
	group.Wait()
	all := told{Errors: map[string]int{}}
	for _, one := range seen {
		all.Committed += one.Committed
		all.Doubtful += one.Doubtful
		all.Longest = append(all.Longest, one.Longest...)
		for kind, count := range one.Errors {
			all.Errors[kind] += count
		}
	}
	json.NewEncoder(os.Stdout).Encode(all)
}
