//! Functions that tell of the server, of connections, and of how relations are kept.

use std::net::SocketAddr;

use block::LogPos;
use block::value::Datum;

use super::Context;
use super::functions::{Function, integer, lax, oid, relation_argument, strict, string};
use super::value::{int4, int8};
use crate::dict::{Index, Method, Table};
use crate::error::{Error, Result};
use crate::pgtype::inet::{self, Inet};
use crate::pgtype::lsn;
use crate::types::Reg::Class;
use crate::types::SqlType::{self, Bool, Int4, Int8, Oid, PgLsn, Reg, Text, TimestampTz};

/// Bytes of the longest name.
const LONGEST_NAME: usize = 63;

/// The tablespaces that there are.
const PG_DEFAULT: u32 = 1663;
const PG_GLOBAL: u32 = 1664;

pub const ALL: &[Function] = &[
    // By this information_schema names functions that have other arguments.
    strict("nameconcatoid", (2, 2), SqlType::Name, |_, a| {
        let (mut name, suffix) = (string(&a[0]).to_string(), format!("_{}", oid(&a[1])));
        while name.len() + suffix.len() > LONGEST_NAME {
            name.pop();
        }
        Ok(Datum::Text(name + &suffix))
    }),
    strict("pg_current_wal_lsn", (0, 0), PgLsn, |cx, _| {
        Ok(position(cx.database.engine().redo().end()))
    }),
    strict("pg_current_wal_insert_lsn", (0, 0), PgLsn, |cx, _| {
        Ok(position(cx.database.engine().redo().end()))
    }),
    strict("pg_current_wal_flush_lsn", (0, 0), PgLsn, |cx, _| {
        Ok(position(cx.database.engine().redo().durable()))
    }),
    // These are of a standby.
    strict("pg_last_wal_receive_lsn", (0, 0), PgLsn, null),
    strict("pg_last_wal_replay_lsn", (0, 0), PgLsn, null),
    strict("pg_last_xact_replay_timestamp", (0, 0), TimestampTz, null),
    strict("pg_is_wal_replay_paused", (0, 0), Bool, no_standby),
    strict("pg_get_wal_replay_pause_state", (0, 0), Text, no_standby),
    lax("inet_client_addr", (0, 0), SqlType::Inet, |_, _| {
        Ok(address(of_connection(|who| who.client)))
    }),
    lax("inet_client_port", (0, 0), Int4, |_, _| {
        Ok(port(of_connection(|who| who.client)))
    }),
    lax("inet_server_addr", (0, 0), SqlType::Inet, |_, _| {
        Ok(address(of_connection(|who| who.server)))
    }),
    lax("inet_server_port", (0, 0), Int4, |_, _| {
        Ok(port(of_connection(|who| who.server)))
    }),
    lax("txid_current_if_assigned", (0, 0), Int8, transaction),
    lax("pg_current_xact_id_if_assigned", (0, 0), Int8, transaction),
    // Numbers of transactions are never used again, so that none grows old.
    strict("mxid_age", (1, 1), Int4, |_, _| Ok(Datum::Int4(0))),
    strict("pg_conf_load_time", (0, 0), TimestampTz, |cx, _| {
        Ok(Datum::TimestampTz(cx.database.started_micros()))
    }),
    strict("pg_jit_available", (0, 0), Bool, |_, _| {
        Ok(Datum::Bool(false))
    }),
    strict("pg_collation_actual_version", (1, 1), Text, null),
    strict("pg_database_collation_actual_version", (1, 1), Text, null),
    strict("pg_relation_filenode", (1, 1), Oid, |cx, a| {
        let number = relation_argument(cx, &a[0])?;
        Ok(match has_segment(cx, number) {
            true => int8(number),
            false => Datum::Null,
        })
    }),
    // All relations are in the files of the database.
    strict("pg_relation_filepath", (1, 1), Text, null),
    strict("pg_filenode_relation", (2, 2), Reg(Class), |cx, a| {
        let number = oid(&a[1]);
        let here = matches!(oid(&a[0]), 0 | PG_DEFAULT);
        Ok(match here && has_segment(cx, number) {
            true => int8(number),
            false => Datum::Null,
        })
    }),
    strict("pg_tablespace_size", (1, 1), Int8, tablespace_size),
    strict(
        "pg_get_replica_identity_index",
        (1, 1),
        Reg(Class),
        |cx, a| {
            let table = cx.dict.table_by_oid(relation_argument(cx, &a[0])?);
            let primary = table.and_then(|t| t.indexes.iter().find(|i| i.primary));
            Ok(primary.map_or(Datum::Null, |i| int8(i.oid)))
        },
    ),
    strict("pg_partition_root", (1, 1), Reg(Class), null),
    strict("pg_indexam_has_property", (2, 2), Bool, |_, a| {
        let mut all = [Method::Btree, Method::Hash, Method::Gin].into_iter();
        let method = all.find(|method| method.oid() == oid(&a[0]));
        Ok(known(
            method.and_then(|m| method_property(m, string(&a[1]))),
        ))
    }),
    strict("pg_index_has_property", (2, 2), Bool, |cx, a| {
        let number = relation_argument(cx, &a[0])?;
        let method = index(cx, number).map(|(_, index)| index.method);
        Ok(known(method.and_then(|m| index_property(m, string(&a[1])))))
    }),
    strict("pg_index_column_has_property", (3, 3), Bool, |cx, a| {
        let number = relation_argument(cx, &a[0])?;
        Ok(known(column_property(cx, number, a)))
    }),
    lax("pg_column_compression", (1, 1), Text, null),
];

fn null(_: &Context, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Null)
}

fn known(property: Option<bool>) -> Datum {
    property.map_or(Datum::Null, Datum::Bool)
}

fn position(at: LogPos) -> Datum {
    Datum::Int8(lsn::stored(at.0))
}

fn no_standby(_: &Context, _: &[Datum]) -> Result<Datum> {
    let hint = "Recovery control functions can only be executed during recovery.";
    Err(Error::new("55000", "recovery is not in progress").hint(hint))
}

/// An end of this session's connection.
fn of_connection(end: fn(wait::session::Identity) -> String) -> Option<SocketAddr> {
    let session = wait::session::current()?;
    end(session.identity()).parse().ok()
}

/// An address as a value of `inet`.
pub fn address(of: Option<SocketAddr>) -> Datum {
    let ip = of.map(|of| of.ip().to_canonical().to_string());
    let parsed = ip.and_then(|ip| inet::parse(&ip, false).ok());
    parsed.map_or(Datum::Null, |inet: Inet| Datum::Bytea(inet.to_stored()))
}

fn port(of: Option<SocketAddr>) -> Datum {
    of.map_or(Datum::Null, |of| int4(of.port()))
}

/// The transaction of this session, if it has a number.
fn transaction(_: &Context, _: &[Datum]) -> Result<Datum> {
    let session = wait::session::current();
    let number = session.map_or(0, |s| {
        s.transaction.load(std::sync::atomic::Ordering::Relaxed)
    });
    Ok(match number {
        0 => Datum::Null,
        number => Datum::Int8(number as i64),
    })
}

/// Whether a relation has blocks of its own.
fn has_segment(cx: &Context, number: u32) -> bool {
    cx.dict.table_by_oid(number).is_some()
        || cx.dict.sequence_by_oid(number).is_some()
        || index(cx, number).is_some()
}

fn index(cx: &Context, number: u32) -> Option<(&Table, &Index)> {
    let table = cx.dict.table_of_part(number)?;
    let index = table.indexes.iter().find(|i| i.oid == number)?;
    Some((table, index))
}

fn tablespace_size(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let number = match &a[0] {
        Datum::Text(name) => match name.as_str() {
            "pg_default" => PG_DEFAULT,
            "pg_global" => PG_GLOBAL,
            name => {
                let message = format!("tablespace \"{name}\" does not exist");
                return Err(Error::new("42704", message));
            }
        },
        number => oid(number),
    };
    match number {
        PG_DEFAULT => super::functions::database_size(cx, &[]),
        // What instances and roles have is in the same files.
        PG_GLOBAL => Ok(int8(0)),
        _ => Ok(Datum::Null),
    }
}

/// What indexes of a method can have, as PostgreSQL says it of its own: an application that asks is
/// to hear the same, also of what no statement can make use of here.
fn method_property(method: Method, property: &str) -> Option<bool> {
    Some(match property {
        "can_order" | "can_unique" | "can_include" => method == Method::Btree,
        "can_multi_col" => method != Method::Hash,
        "can_exclude" => method != Method::Gin,
        _ => return None,
    })
}

/// What an index of a method has.
fn index_property(method: Method, property: &str) -> Option<bool> {
    Some(match property {
        "clusterable" => method == Method::Btree,
        "index_scan" | "backward_scan" => method != Method::Gin,
        "bitmap_scan" => true,
        _ => return None,
    })
}

/// What a column of an index has; nothing is known of other columns and properties.
fn column_property(cx: &Context, number: u32, a: &[Datum]) -> Option<bool> {
    let (_, index) = index(cx, number)?;
    let at = usize::try_from(integer(&a[1])).ok()?.checked_sub(1)?;
    let key = index.keys.get(at);
    if key.is_none() && at >= index.keys.len() + index.included.len() {
        return None;
    }
    let is_ordered = index.method.is_ordered();
    // Nothing is known of a column that is no key.
    let of_key = |property: fn(&crate::dict::IndexKey) -> bool| {
        let key = key?;
        Some(is_ordered && property(key))
    };
    match string(&a[2]) {
        "asc" => of_key(|c| !c.descending),
        "desc" => of_key(|c| c.descending),
        "nulls_first" => of_key(|c| c.nulls_first),
        "nulls_last" => of_key(|c| !c.nulls_first),
        "search_array" | "search_nulls" => of_key(|_| true),
        "orderable" => Some(is_ordered && key.is_some()),
        "distance_orderable" => Some(false),
        "returnable" => Some(is_ordered),
        _ => None,
    }
}
