// GORM: AutoMigrate twice, then of a model that has changed; relations, upserts, batches, locks; what
// its migrator reads of the catalogs.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"sort"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

type Company struct {
	ID    uint   `gorm:"primaryKey"`
	Name  string `gorm:"size:40;uniqueIndex;not null;comment:the name"`
	Users []User
}
type Tag struct {
	Label string `gorm:"primaryKey;size:20"`
}
type User struct {
	gorm.Model
	Name      string          `gorm:"size:40;index:idx_name_age,priority:1,sort:desc;check:name_long,length(name) > 0"`
	Age       int             `gorm:"index:idx_name_age;default:18"`
	Email     *string         `gorm:"uniqueIndex:,where:email is not null"`
	Data      json.RawMessage `gorm:"type:jsonb;default:'{}'"`
	Uid       string          `gorm:"type:uuid;default:gen_random_uuid()"`
	Price     float64         `gorm:"type:numeric(10,2)"`
	Blob      []byte
	CompanyID *uint
	Company   *Company  `gorm:"constraint:OnUpdate:CASCADE,OnDelete:SET NULL"`
	Tags      []Tag     `gorm:"many2many:user_tags"`
	Seen      time.Time `gorm:"autoCreateTime"`
}
type UserLater struct {
	gorm.Model
	Name  string `gorm:"size:80;not null;default:x"`
	Age   int64  `gorm:"default:21;comment:years"`
	Email *string
	Price float64 `gorm:"type:numeric(12,3)"`
	More  string  `gorm:"type:text;index"`
	Flag  bool    `gorm:"default:true"`
}

func (UserLater) TableName() string { return "users" }

func opened(url string) *gorm.DB {
	db, err := gorm.Open(postgres.Open(url), &gorm.Config{Logger: logger.Default.LogMode(logger.Silent)})
	if err != nil {
		log.Fatal("gorm: ", err)
	}
	return db
}

func gormed(url, other string) {
	db := opened(url)
	step("drop", `null`, func() (any, error) {
		return nil, db.Exec("drop table if exists user_tags, users, companies, tags cascade").Error
	})
	step("migrate", `null`, func() (any, error) { return nil, db.AutoMigrate(&Company{}, &Tag{}, &User{}) })
	step("migrate again", `null`, func() (any, error) { return nil, opened(other).AutoMigrate(&Company{}, &Tag{}, &User{}) })
	step("create", `2`, func() (any, error) {
		c := Company{Name: "acme", Users: []User{{Name: "a", Tags: []Tag{{"x"}, {"y"}}}, {Name: "b"}}}
		return len(c.Users), db.Create(&c).Error
	})
	step("preload", `[2,2,"acme"]`, func() (any, error) {
		var u []User
		e := db.Preload("Tags").Joins("Company").Where("users.name IN ?", []string{"a", "b"}).Order("users.name").Find(&u).Error
		return []any{len(u), len(u[0].Tags), u[0].Company.Name}, e
	})
	step("upsert", `true`, func() (any, error) {
		c := Company{Name: "acme"}
		e := db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"name"})}, clause.Returning{}).Create(&c).Error
		return c.ID > 0, e
	})
	step("firstorcreate", `5`, func() (any, error) {
		var u User
		e := db.Where(User{Name: "n"}).Attrs(User{Age: 5}).FirstOrCreate(&u).Error
		return u.Age, e
	})
	step("update", `3`, func() (any, error) {
		r := db.Model(&User{}).Where("age > ?", 1).Updates(map[string]any{"age": gorm.Expr("age + ?", 1)})
		return r.RowsAffected, r.Error
	})
	step("soft delete", `[2,3]`, func() (any, error) {
		e := db.Where("name = ?", "n").Delete(&User{}).Error
		var n, m int64
		db.Model(&User{}).Count(&n)
		db.Unscoped().Model(&User{}).Count(&m)
		return []int64{n, m}, e
	})
	step("batches", `302`, func() (any, error) {
		us := make([]User, 300)
		for i := range us {
			us[i].Name = fmt.Sprint("u", i)
		}
		if e := db.CreateInBatches(us, 100).Error; e != nil {
			return nil, e
		}
		n := 0
		var part []User
		e := db.FindInBatches(&part, 77, func(tx *gorm.DB, batch int) error { n += len(part); return nil }).Error
		return n, e
	})
	step("tx", `null`, func() (any, error) {
		return nil, db.Transaction(func(tx *gorm.DB) error {
			var u User
			if e := tx.Clauses(clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"}).First(&u).Error; e != nil {
				return e
			}
			tx.SavePoint("s")
			tx.Model(&u).Association("Tags").Append(&Tag{"z"})
			tx.RollbackTo("s")
			return tx.Model(&u).Association("Tags").Replace(&Tag{"w"})
		})
	})
	step("dup", `["23505","idx_companies_name","companies"]`, func() (any, error) {
		e := db.Exec("insert into companies (name) values ('acme')").Error
		var p *pgconn.PgError
		errors.As(e, &p)
		return []string{p.Code, p.ConstraintName, p.TableName}, nil
	})
	step("later", `null`, func() (any, error) { return nil, db.AutoMigrate(&UserLater{}) })
	step("later again", `null`, func() (any, error) { return nil, db.AutoMigrate(&UserLater{}) })
	step("types", `["ageint8true 64 true 64 0 true21trueyearsfalse falsebigint","blobbyteatrue 9223372036854775807 true 0 0 falsefalsefalse falsebytea","company_idint8true 64 true 64 0 truefalsefalse falsebigint","created_attimestamptztrue 64 true 6 0 truefalsefalse falsetimestamp with time zone","datajsonbtrue 0 false 0 0 false{}truefalse falsejsonb","deleted_attimestamptztrue 64 true 6 0 truefalsefalse falsetimestamp with time zone","emailtexttrue 9223372036854775807 true 0 0 falsefalsefalse falsetext","flagbooltrue 8 true 0 0 falsetruetruefalse falseboolean","idint8false 64 true 64 0 truefalsetrue falsebigint","moretexttrue 9223372036854775807 true 0 0 falsefalsefalse falsetext","namevarcharfalse 80 true 0 0 falsextruefalse falsecharacter varying(80)","pricenumerictrue 0 false 12 3 truefalsefalse falsenumeric(12,3)","seentimestamptztrue 64 true 6 0 truefalsefalse falsetimestamp with time zone","uiduuidtrue 128 true 0 0 falsegen_random_uuid()truefalse falseuuid","updated_attimestamptztrue 64 true 6 0 truefalsefalse falsetimestamp with time zone"]`, func() (any, error) {
		ts, e := db.Migrator().ColumnTypes("users")
		var all []string
		for _, t := range ts {
			n, _ := t.Nullable()
			l, lok := t.Length()
			p, sc, ok := t.DecimalSize()
			d, dok := t.DefaultValue()
			cm, _ := t.Comment()
			pk, _ := t.PrimaryKey()
			un, _ := t.Unique()
			ct, _ := t.ColumnType()
			all = append(all, fmt.Sprint(t.Name(), t.DatabaseTypeName(), n, l, lok, p, sc, ok, d, dok, cm, pk, un, ct))
		}
		sort.Strings(all)
		return all, e
	})
	step("indexes", `["idx_name_age[name age] false false","idx_users_deleted_at[deleted_at] false false","idx_users_email[email] true false","idx_users_more[more] false false"]`, func() (any, error) {
		is, e := db.Migrator().GetIndexes("users")
		var all []string
		for _, i := range is {
			u, _ := i.Unique()
			p, _ := i.PrimaryKey()
			all = append(all, fmt.Sprint(i.Name(), i.Columns(), u, p))
		}
		sort.Strings(all)
		return all, e
	})
	step("migrator", `[4,"braid",true,true,true,true]`, func() (any, error) {
		m := db.Migrator()
		t, e := m.GetTables()
		if e != nil {
			return nil, e
		}
		if e := m.RenameColumn(&UserLater{}, "more", "most"); e != nil {
			return nil, e
		}
		if e := m.DropColumn(&UserLater{}, "flag"); e != nil {
			return nil, e
		}
		if e := m.CreateView("grown", gorm.ViewOption{Query: db.Model(&UserLater{}).Where("age > 20"), Replace: true}); e != nil {
			return nil, e
		}
		if e := m.DropView("grown"); e != nil {
			return nil, e
		}
		return []any{len(t), m.CurrentDatabase(), m.HasTable("users"), m.HasColumn(&UserLater{}, "most"), m.HasIndex(&User{}, "idx_name_age"), m.HasConstraint(&User{}, "name_long")}, m.DropTable("user_tags", "users", "companies", "tags")
	})
}
