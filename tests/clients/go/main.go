// pgx and lib/pq: each connects and asks. Without TLS, sslmode=require is refused by the client.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"
)

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "options='-c geqo=off' sslmode=prefer")
	if err != nil {
		log.Fatal("pgx: ", err)
	}
	var n int
	var geqo, text string
	err = conn.QueryRow(ctx, "select $1::int + 1, current_setting('geqo'), $2::text", 41, "é€").Scan(&n, &geqo, &text)
	if err != nil || n != 42 || geqo != "off" || text != "é€" {
		log.Fatal("pgx: ", err, n, geqo, text)
	}
	conn.Close(ctx)

	where := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable client_encoding=UTF8",
		os.Getenv("PGHOST"), os.Getenv("PGPORT"), os.Getenv("PGUSER"), os.Getenv("PGDATABASE"))
	db, err := sql.Open("postgres", where)
	if err != nil {
		log.Fatal("lib/pq: ", err)
	}
	var schema string
	if err := db.QueryRow("select current_schema from current_schema()").Scan(&schema); err != nil || schema != "public" {
		log.Fatal("lib/pq: ", err, schema)
	}
	if err := db.Close(); err != nil {
		log.Fatal("lib/pq: ", err)
	}
}
