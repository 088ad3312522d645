# Rails' ActiveRecord: migrations up and down, the dump of a schema, models with relations, queries,
# upserts, locks, transactions. active_record.expected has what PostgreSQL 15 gives.
require 'active_record'
require 'json'
require 'logger'

ActiveRecord::Base.establish_connection(
  adapter: 'postgresql', host: ENV['PGHOST'], port: ENV['PGPORT'], username: ENV['PGUSER'],
  database: ENV['PGDATABASE'], pool: 8, schema_search_path: 'ar,public', min_messages: 'warning'
)
ActiveRecord::Migration.verbose = false

def told(what, answer = nil)
  puts "#{what}: #{answer.to_json}"
rescue StandardError => e
  puts "#{what}: FAILED #{e.class}"
end

def refused(what)
  yield
  puts "#{what}: not refused"
rescue ActiveRecord::ActiveRecordError => e
  puts "#{what}: #{e.class}"
end

ActiveRecord::Base.connection.execute('drop schema if exists ar cascade; create schema ar')
C = ActiveRecord::Base.connection

class First < ActiveRecord::Migration[6.1]
  def change
    reversible do |way|
      way.up { execute "create type ar.mood as enum ('sad', 'ok')" }
      way.down { execute 'drop type ar.mood' }
    end
    create_table :authors, comment: 'who writes' do |t|
      t.string :name, limit: 80, null: false, index: { unique: true }
      t.column :mood, 'mood', default: 'ok'
      t.text :tags, array: true, default: []
      t.jsonb :data, null: false, default: {}
      t.decimal :balance, precision: 12, scale: 2, default: 0
      t.binary :picture
      t.uuid :token, default: -> { 'gen_random_uuid()' }
      t.inet :address
      t.int4range :years
      t.tstzrange :seen
      t.interval :patience
      t.boolean :active, default: true
      t.date :born
      t.integer :lock_version, default: 0
      t.timestamps
    end
    create_table :books do |t|
      t.references :author, null: false, foreign_key: { on_delete: :cascade }
      t.string :title
      t.float :score
      t.integer :books_count
      t.index [:author_id, :title], unique: true
      t.index 'lower(title)', name: 'books_lower'
      t.index :score, where: 'books_count > 1', order: { score: :desc }
      t.check_constraint 'books_count >= 0', name: 'books_count'
    end
    create_table :labels, id: :uuid do |t|
      t.string :name
    end
    create_table :books_labels, id: false do |t|
      t.bigint :book_id, null: false
      t.uuid :label_id, null: false, index: true
    end
    create_table :comments, id: :serial do |t|
      t.references :subject, polymorphic: true
      t.text :body
    end
  end
end

class Second < ActiveRecord::Migration[6.1]
  def up
    add_column :authors, :nick, :string, comment: 'short'
    change_column :books, :score, :decimal, precision: 8, scale: 3, default: 1
    change_column_null :books, :title, false, 'untitled'
    change_column_default :authors, :active, from: true, to: false
    rename_column :authors, :born, :birthday
    remove_column :authors, :picture
    add_index :authors, :data, using: :btree, name: 'authors_data'
    remove_index :authors, name: 'authors_data'
    add_foreign_key :comments, :authors, column: :subject_id, validate: false, name: 'comments_author'
    remove_foreign_key :comments, name: 'comments_author'
    rename_table :comments, :remarks
    rename_index :books, 'books_lower', 'books_lower_title'
    change_table_comment :books, from: nil, to: 'read'
    execute 'create view old_books as select * from books where score > 2'
  end

  def down
    execute 'drop view old_books'
    rename_table :remarks, :comments
    rename_index :books, 'books_lower_title', 'books_lower'
    add_column :authors, :picture, :binary
    rename_column :authors, :birthday, :born
    change_column :books, :score, :float, default: nil
    remove_column :authors, :nick
  end
end

class Migrations
  def self.run(way)
    all = [First.new('First', 1), Second.new('Second', 2)]
    ActiveRecord::Migrator.new(way, all, ActiveRecord::SchemaMigration).migrate
  end
end

def schema
  out = StringIO.new
  ActiveRecord::SchemaDumper.dump(C, out)
  # The dump of an enum's columns is a remark with other words in each version.
  out.string.lines.map(&:rstrip).reject { |l| l.empty? || l.start_with?('#') }
end

ActiveRecord::SchemaMigration.create_table
ActiveRecord::InternalMetadata.create_table
Migrations.run(:up)
told 'schema', schema
Migrations.run(:down)
told 'nothing', C.tables.sort
Migrations.run(:up)
told 'tables', [C.tables.sort, C.views, C.data_sources.sort]
told 'columns', C.columns('authors').map { |c| [c.name, c.sql_type, c.null, c.default, c.default_function, c.comment] }
told 'indexes', C.indexes('books').map { |i| [i.name, i.columns, i.unique, i.where, i.orders] }.sort_by(&:first)
told 'keys', C.foreign_keys('books').map { |k| [k.to_table, k.column, k.on_delete] }
told 'checks', C.check_constraints('books').map { |k| [k.name, k.expression] }
told 'primary', [C.primary_key('labels'), C.primary_keys('books_labels'), C.pk_and_sequence_for('books').map(&:to_s)]
told 'server', [C.extensions, C.schema_exists?('ar'), C.current_schema, C.encoding, C.collation.is_a?(String), C.client_min_messages]
told 'supports', [C.supports_insert_on_conflict?, C.supports_advisory_locks?, C.supports_partial_index?, C.supports_explain?]

class Author < ActiveRecord::Base
  attribute :patience, :interval
  has_many :books, -> { order(:title) }, dependent: :destroy
  has_many :labels, through: :books
  has_many :remarks, as: :subject
  scope :busy, -> { joins(:books).group(:id).having('count(books.id) > 1') }
end

class Book < ActiveRecord::Base
  belongs_to :author, touch: true
  has_and_belongs_to_many :labels
  has_many :remarks, as: :subject
  validates :title, uniqueness: { scope: :author_id, case_sensitive: false }
end

class Label < ActiveRecord::Base
  has_and_belongs_to_many :books
end

class Remark < ActiveRecord::Base
  belongs_to :subject, polymorphic: true
end

ann = Author.create!(name: 'Ann', mood: 'sad', tags: ['a', 'b,c'], data: { x: { y: [1, 2] } }, balance: '12.50',
                     address: '10.0.0.1/24', years: 1990...2000, patience: 3.days + 2.hours, birthday: Date.new(2000, 2, 29),
                     seen: Time.utc(2026, 1, 1)..Time.utc(2026, 1, 2))
ann.reload
told 'ann', [ann.tags, ann.data, ann.balance, ann.address.to_s, ann.years, ann.seen.begin.utc, ann.patience.inspect, ann.birthday, ann.active, ann.token.size]
labels = %w[new old].map { |n| Label.create!(name: n) }
20.times { |i| ann.books.create!(title: "Book #{i}", score: i / 4.0, labels: i.even? ? labels : []) }
ann.remarks.create!(body: 'well')
refused('unique') { Author.create!(name: 'Ann') }
refused('foreign key') { Book.insert!({ author_id: -1, title: 'x' }) }
refused('check') { Book.where(title: 'Book 1').update_all(books_count: -1) }
refused('not null') { Book.insert!({ author_id: ann.id }) }
refused('too long') { Author.create!(name: 'x' * 81) }
refused('range') { Book.where(books_count: 2**40).to_a; Book.update_all("books_count = 2147483648") }
refused('validation') { ann.books.create!(title: 'BOOK 1') }
refused('syntax') { C.execute('selec 1') }
told 'eager', Author.eager_load(books: :labels).where(labels: { name: 'new' }).order('books.title').first.books.size
told 'includes', Author.includes(:labels, :remarks).map { |a| [a.labels.size, a.remarks.size] }
told 'busy', Author.busy.pluck(:name)
told 'count', [Book.joins(:labels).group('labels.name').order('labels.name').count, Book.group(:books_count).average(:score), Book.distinct.count(:score)]
told 'sum', [Book.sum(:score), Book.maximum(:title), Book.where(score: 1..2).pick(:title), Book.where.not(score: nil).average(:score)]
told 'json', Author.where("data->'x'->'y' @> ?", '[2]').or(Author.where("'zz' = any(tags)")).pluck(:name, Arel.sql("data->'x'"))
told 'find', [Book.find_by(title: 'Book 3')&.score, Author.exists?(name: 'Ann'), Book.where(title: ['Book 1', 'Book 2', nil]).ids.size]
told 'batches', Book.find_in_batches(batch_size: 7).map(&:size)
told 'limit', Book.order(score: :desc).offset(2).limit(3).pluck(:title)
told 'from', Book.from(Book.where('score > 2'), :books).where('score < 3').count
both = %w[1 2].map { |n| Book.select(:title).where("title = 'Book #{n}'").to_sql }
told 'union', C.select_values(both.join(' union ')).sort
told 'insert_all', Label.insert_all([{ name: 'x' }, { name: 'y' }], returning: [:name]).rows
up = [{ name: 'Ann', nick: 'A' }, { name: 'Bob', nick: 'B' }].map { |a| a.merge(created_at: Time.now, updated_at: Time.now) }
told 'upsert_all', Author.upsert_all(up, unique_by: :name, returning: [:nick]).rows
told 'skipped', Author.insert_all([up[0]], unique_by: :index_authors_on_name).rows
first = Author.find_by(name: 'Bob')
second = Author.find_by(name: 'Bob')
first.update!(nick: 'BB')
refused('stale') { second.update!(nick: 'CC') }
told 'lock', [Author.lock.find(ann.id).with_lock { 1 }, Author.lock('FOR UPDATE SKIP LOCKED').to_a.size, Author.lock('FOR NO KEY UPDATE NOWAIT').first.name]
Author.transaction do
  Author.transaction(requires_new: true) do
    Book.delete_all
    raise ActiveRecord::Rollback
  end
  told 'savepoint', Book.count
end
refused('deadline') { C.execute("set statement_timeout = '50ms'"); C.execute('select pg_sleep(10)') }
C.execute('reset statement_timeout')
Author.transaction(isolation: :repeatable_read) { told 'isolation', C.select_value('show transaction_isolation') }
told 'explain', Book.where(title: 'x').explain.include?('QUERY PLAN')
told 'bind', C.exec_query('select $1::int + $2::int as n', 'x', [[nil, 40], [nil, 2]]).to_a
told 'prepared', C.select_value(Book.where(title: 'Book 5').select(:score).arel)
told 'advisory', [C.get_advisory_lock(42), C.release_advisory_lock(42)]
threads = 4.times.map { |n| Thread.new { ActiveRecord::Base.connection_pool.with_connection { 25.times { Book.where(title: "Book #{n}").update_all('score = score + 1') } } } }
threads.each(&:join)
told 'threads', Book.where('score > 24').count
ann.reload.destroy!
told 'destroyed', [Book.count, C.select_value('select count(*) from books_labels'), Remark.count]
C.truncate_tables('authors', 'books')
C.reset_pk_sequence!('authors')
told 'again', Author.create!(name: 'Z').id
C.execute('drop schema ar cascade')
