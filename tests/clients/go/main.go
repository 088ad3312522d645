// pgx and lib/pq connect and ask, lib/pq in the clear and by TLS, with every sslmode. Then more of
// pgx, GORM and golang-migrate. With the word failover: the client of failover.py.
package main

import (
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "failover" {
		failover()
		return
	}
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

	authority := " sslrootcert=" + os.Getenv("BRAID_AUTHORITY")
	libpq("sslmode=disable")
	// From here on the client refuses a server that does not encrypt.
	libpq("sslmode=require")
	libpq("sslmode=verify-ca" + authority)
	libpq("sslmode=verify-full" + authority)
	stranger()

	url := func(port string) string {
		host, user, database := os.Getenv("PGHOST"), os.Getenv("PGUSER"), os.Getenv("PGDATABASE")
		return fmt.Sprintf("postgres://%s@%s:%s/%s?sslmode=disable", user, host, port, database)
	}
	here, other := url(os.Getenv("PGPORT")), url(os.Getenv("PGPORT2"))
	native(here)
	gormed(here, other)
	migrated(here)
}

func open(mode string) *sql.DB {
	where := fmt.Sprintf("host=%s port=%s user=%s dbname=%s client_encoding=UTF8 %s",
		os.Getenv("PGHOST"), os.Getenv("PGPORT"), os.Getenv("PGUSER"), os.Getenv("PGDATABASE"), mode)
	db, err := sql.Open("postgres", where)
	if err != nil {
		log.Fatal("lib/pq, ", mode, ": ", err)
	}
	return db
}

// Asks, also for more than one TLS record holds.
func libpq(mode string) {
	db := open(mode)
	var schema string
	if err := db.QueryRow("select current_schema from current_schema()").Scan(&schema); err != nil || schema != "public" {
		log.Fatal("lib/pq, ", mode, ": ", err, schema)
	}
	var long string
	if err := db.QueryRow("select repeat($1::text, 20000)", "é€x").Scan(&long); err != nil || long != strings.Repeat("é€x", 20000) {
		log.Fatal("lib/pq, ", mode, ": ", err, len(long))
	}
	if err := db.Close(); err != nil {
		log.Fatal("lib/pq, ", mode, ": ", err)
	}
}

// A client that believes other authorities only does not talk to this server.
func stranger() {
	db := open("sslmode=verify-full")
	defer db.Close()
	var unknown x509.UnknownAuthorityError
	if err := db.Ping(); !errors.As(err, &unknown) {
		log.Fatal("lib/pq, an authority that it does not know: ", err)
	}
}
