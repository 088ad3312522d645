// golang-migrate: up, down, and to a version.
package main

import (
	"embed"
	"log"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

//go:embed migrations/*.sql
var files embed.FS

func migrated(url string) {
	src, err := iofs.New(files, "migrations")
	if err != nil {
		log.Fatal("golang-migrate: ", err)
	}
	m, err := migrate.NewWithSourceInstance("iofs", src, "pgx5"+url[len("postgres"):])
	if err != nil {
		log.Fatal("golang-migrate: ", err)
	}
	step("up", `null`, func() (any, error) { return nil, m.Up() })
	step("version", `[2,false]`, func() (any, error) { v, d, e := m.Version(); return []any{v, d}, e })
	step("no change", `true`, func() (any, error) { return m.Up() == migrate.ErrNoChange, nil })
	step("steps", `null`, func() (any, error) { return nil, m.Steps(-1) })
	step("migrate", `null`, func() (any, error) { return nil, m.Migrate(2) })
	step("down", `null`, func() (any, error) { return nil, m.Down() })
	step("up again", `null`, func() (any, error) { return nil, m.Up() })
	step("drop", `null`, func() (any, error) { return nil, m.Drop() })
	m.Close()
}
