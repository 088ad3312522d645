//! tokio-postgres and sqlx: statements, enums, arrays, json, COPY, pipelining, notifications,
//! cancellation, migrations.

use std::env::var;
use std::error::Error;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt, TryStreamExt, stream};
use sqlx::postgres::{PgListener, PgPoolCopyExt, PgPoolOptions};
use sqlx::{Acquire, Row};
use tokio_postgres::{NoTls, SimpleQueryMessage};

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let (host, port) = (var("PGHOST")?, var("PGPORT")?);
    let (user, database) = (var("PGUSER")?, var("PGDATABASE")?);
    tokio_postgres_client(&format!(
        "host={host} port={port} user={user} dbname={database}"
    ))
    .await?;
    sqlx_client(&format!(
        "postgres://{user}@{host}:{port}/{database}?sslmode=disable"
    ))
    .await
}

async fn tokio_postgres_client(config: &str) -> Outcome {
    let (mut client, mut connection) = tokio_postgres::connect(config, NoTls).await?;
    let (sender, mut messages) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut all = stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(message) = all.next().await {
            if sender.send(message.expect("the connection holds")).is_err() {
                return;
            }
        }
    });
    client
        .batch_execute(
            "drop table if exists rust_t; drop type if exists rust_kind;
             create type rust_kind as enum ('a', 'b');
             create table rust_t (id int primary key, k rust_kind, tags text[], data jsonb,
                                  n float8)",
        )
        .await?;
    let insert = client
        .prepare("insert into rust_t values ($1, $2::text::rust_kind, $3, $4, $5) returning id")
        .await?;
    // Without waiting for each other's answers.
    let one = serde_json::json!({"a": [1]});
    let ids = futures_util::future::try_join_all((1..=20).map(|id| {
        let (client, insert, one) = (&client, &insert, &one);
        async move {
            client
                .query_one(insert, &[&id, &"a", &vec!["x", "y,z"], one, &0.5])
                .await
        }
    }))
    .await?;
    assert_eq!(ids.len(), 20);
    let row = client
        .query_one(
            "select tags, data, n, k::text from rust_t where id = any($1)",
            &[&vec![3, 99]],
        )
        .await?;
    assert_eq!(row.get::<_, Vec<String>>(0), ["x", "y,z"]);
    assert_eq!(row.get::<_, serde_json::Value>(1), one);
    let error = client
        .execute(&insert, &[&3, &"a", &Vec::<String>::new(), &one, &0.5])
        .await
        .unwrap_err();
    assert_eq!(
        error.as_db_error().and_then(|e| e.constraint()),
        Some("rust_t_pkey")
    );

    let sink = client.copy_in("copy rust_t (id, k) from stdin").await?;
    let mut sink = std::pin::pin!(sink);
    for id in 100..200 {
        sink.send(
            format!("{id}\tb\n")
                .into_bytes()
                .into_iter()
                .collect::<bytes::Bytes>(),
        )
        .await?;
    }
    assert_eq!(sink.finish().await?, 100);
    let out = client
        .copy_out("copy (select id from rust_t where id >= 100) to stdout")
        .await?;
    let lines: Vec<bytes::Bytes> = out.try_collect().await?;
    assert_eq!(
        lines
            .iter()
            .map(|l| l.iter().filter(|b| **b == b'\n').count())
            .sum::<usize>(),
        100
    );

    let mut transaction = client.build_transaction().read_only(false).start().await?;
    let portal = transaction
        .bind("select id from rust_t order by id", &[])
        .await?;
    assert_eq!(transaction.query_portal(&portal, 7).await?.len(), 7);
    assert_eq!(
        transaction.query_portal(&portal, 7).await?[0].get::<_, i32>(0),
        8
    );
    let savepoint = transaction.savepoint("s").await?;
    savepoint.execute("delete from rust_t", &[]).await?;
    savepoint.rollback().await?;
    transaction.commit().await?;
    let all = client
        .simple_query("select count(*) from rust_t; select 1")
        .await?;
    assert!(
        all.iter()
            .any(|m| matches!(m, SimpleQueryMessage::Row(r) if r.get(0) == Some("120")))
    );

    client
        .batch_execute("listen rust; notify rust, 'hi'")
        .await?;
    loop {
        match messages.recv().await {
            Some(tokio_postgres::AsyncMessage::Notification(n)) => {
                break assert_eq!(n.payload(), "hi");
            }
            Some(_) => {}
            None => panic!("no notification"),
        }
    }
    let cancel = client.cancel_token();
    let asleep = client.batch_execute("select pg_sleep(60)");
    let cancelled = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel_query(NoTls).await
    };
    let (slept, cancelled) = futures_util::future::join(asleep, cancelled).await;
    cancelled?;
    assert_eq!(slept.unwrap_err().code().map(|c| c.code()), Some("57014"));
    client
        .batch_execute("drop table rust_t; drop type rust_kind")
        .await?;
    Ok(())
}

#[derive(sqlx::Type, PartialEq, Debug)]
#[sqlx(type_name = "rust_mood", rename_all = "lowercase")]
enum Mood {
    Sad,
    Ok,
}

#[derive(sqlx::FromRow)]
struct Note {
    id: i64,
    body: String,
    mood: Mood,
    tags: Vec<String>,
    data: Option<sqlx::types::Json<Vec<i32>>>,
}

async fn sqlx_client(url: &str) -> Outcome {
    let pool = PgPoolOptions::new().max_connections(4).connect(url).await?;
    let clean = "drop table if exists rust_notes, _sqlx_migrations;
                 drop function if exists rust_touch; drop type if exists rust_mood";
    sqlx::raw_sql(clean).execute(&pool).await?;
    let migrations = sqlx::migrate!();
    migrations.run(&pool).await?;
    migrations.run(&pool).await?;

    let insert =
        "insert into rust_notes (body, mood, tags, data) values ($1, $2, $3, $4) returning *";
    for at in 0..5 {
        let note: Note = sqlx::query_as(insert)
            .bind(format!(" note {at} "))
            .bind(if at == 0 { Mood::Sad } else { Mood::Ok })
            .bind(vec!["a", "b,c"])
            .bind(sqlx::types::Json(vec![1, at]))
            .fetch_one(&pool)
            .await?;
        assert_eq!((note.body, note.tags.len()), (format!("note {at}"), 2));
        assert!(note.id > 0 && note.data.is_some_and(|d| d.0 == [1, at]));
    }
    let bodies = ["x", "y"].map(String::from);
    let many =
        "insert into rust_notes (body) select * from unnest($1::text[]) on conflict do nothing";
    assert_eq!(
        sqlx::query(many)
            .bind(&bodies[..])
            .execute(&pool)
            .await?
            .rows_affected(),
        2
    );
    let notes: Vec<Note> = sqlx::query_as("select * from rust_notes where mood = $1")
        .bind(Mood::Sad)
        .fetch_all(&pool)
        .await?;
    assert_eq!(notes[0].mood, Mood::Sad);
    let mut rows = sqlx::query("select id from rust_notes").fetch(&pool);
    let mut count = 0;
    while let Some(row) = rows.try_next().await? {
        count += i32::from(row.get::<i64, _>(0) > 0);
    }
    assert_eq!(count, 7);
    drop(rows);

    let mut transaction = pool.begin().await?;
    let mut inner = transaction.begin().await?;
    sqlx::query("delete from rust_notes")
        .execute(&mut *inner)
        .await?;
    inner.rollback().await?;
    transaction.commit().await?;
    let error = sqlx::query("insert into rust_notes (body) values ('x')")
        .execute(&pool)
        .await
        .unwrap_err();
    assert!(
        error
            .as_database_error()
            .is_some_and(|e| e.is_unique_violation())
    );

    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen("rust_news").await?;
    sqlx::query("select pg_notify('rust_news', 'hi')")
        .execute(&pool)
        .await?;
    assert_eq!(listener.recv().await?.payload(), "hi");
    let mut copy = pool
        .copy_in_raw("copy rust_notes (body) from stdin")
        .await?;
    copy.send("copied\n".as_bytes()).await?;
    assert_eq!(copy.finish().await?, 1);
    drop(listener);
    sqlx::raw_sql(clean).execute(&pool).await?;
    pool.close().await;
    Ok(())
}
