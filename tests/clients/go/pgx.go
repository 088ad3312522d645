// pgx: CopyFrom, batches, each mode of queries, notifications, cancellation, transactions.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Runs a step; its answer, as JSON, is PostgreSQL's.
func step(name, wanted string, run func() (any, error)) {
	answer, err := run()
	if err != nil {
		log.Fatal(name, ": ", err)
	}
	if found, _ := json.Marshal(answer); string(found) != wanted {
		log.Fatal(name, ": ", string(found), ", not ", wanted)
	}
}

func native(url string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		log.Fatal("pgx: ", err)
	}
	defer pool.Close()
	pool.Exec(ctx, "drop table if exists gx; drop type if exists gx_mood; create type gx_mood as enum ('sad','ok'); create table gx (id int primary key, t text, m gx_mood, a int[], n numeric, j jsonb, ts timestamptz)")
	step("copyfrom", `1000`, func() (any, error) {
		rows := [][]any{}
		for i := 0; i < 1000; i++ {
			rows = append(rows, []any{i, fmt.Sprint("t", i), "ok", []int32{1, 2}, 1.5, map[string]int{"a": i}, time.Unix(int64(i), 0)})
		}
		c, _ := pool.Acquire(ctx)
		defer c.Release()
		t, e := c.Conn().LoadType(ctx, "gx_mood")
		if e != nil {
			return nil, e
		}
		c.Conn().TypeMap().RegisterType(t)
		return pool.CopyFrom(ctx, pgx.Identifier{"gx"}, []string{"id", "t", "m", "a", "n", "j", "ts"}, pgx.CopyFromRows(rows))
	})
	step("copyfrom2", `1`, func() (any, error) {
		return pool.CopyFrom(ctx, pgx.Identifier{"gx"}, []string{"id", "t", "a"}, pgx.CopyFromRows([][]any{{2000, "x", []int32{1}}}))
	})
	step("batch", `15`, func() (any, error) {
		b := &pgx.Batch{}
		for i := 0; i < 5; i++ {
			b.Queue("select $1::int + 1", i)
		}
		b.Queue("insert into gx (id) values ($1)", 3000)
		r := pool.SendBatch(ctx, b)
		defer r.Close()
		s := 0
		for i := 0; i < 5; i++ {
			var n int
			if e := r.QueryRow().Scan(&n); e != nil {
				return nil, e
			}
			s += n
		}
		_, e := r.Exec()
		return s, e
	})
	step("batch error", `[true,0]`, func() (any, error) {
		b := &pgx.Batch{}
		b.Queue("insert into gx (id) values (4000)")
		b.Queue("insert into gx (id) values (3000)")
		e := pool.SendBatch(ctx, b).Close()
		var n int
		pool.QueryRow(ctx, "select count(*) from gx where id = 4000").Scan(&n)
		return []any{e != nil, n}, nil
	})
	step("collect", `2`, func() (any, error) {
		type R struct {
			Id int
			T  *string
			A  []int32
			N  *float64
			J  map[string]int
			Ts *time.Time
		}
		rows, _ := pool.Query(ctx, "select id, t, a, n, j, ts from gx where id = any($1) order by id", []int{1, 2000})
		r, e := pgx.CollectRows(rows, pgx.RowToStructByName[R])
		return len(r), e
	})
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		step("mode "+mode.String(), `"a5"`, func() (any, error) {
			var s string
			e := pool.QueryRow(ctx, "select $1::text || $2::int::text", mode, "a", 5).Scan(&s)
			return s, e
		})
	}
	step("listen", `"hi"`, func() (any, error) {
		c, _ := pool.Acquire(ctx)
		defer c.Release()
		c.Exec(ctx, "listen gx")
		pool.Exec(ctx, "notify gx, 'hi'")
		t, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		n, e := c.Conn().WaitForNotification(t)
		if e != nil {
			return nil, e
		}
		return n.Payload, nil
	})
	step("cancel", `true`, func() (any, error) {
		t, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, e := pool.Exec(t, "select pg_sleep(10)")
		return e != nil, nil
	})
	step("tx", `null`, func() (any, error) {
		return nil, pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(s pgx.Tx) error { _, e := s.Exec(ctx, "update gx set t = 'z'"); return e })
		})
	})
	pool.Exec(ctx, "drop table gx; drop type gx_mood")
}
