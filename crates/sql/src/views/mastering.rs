//! Which instance masters what it uses mostly, and why: Oracle's names for its views, ranges of blocks for its objects.

use engine::{GranuleRow, PolicyEvent, PolicyRow};
use std::collections::HashMap;

use block::ObjectId;
use block::value::Datum;

use super::Source::Here;
use super::remote::object_names;
use super::value::{NULL, int4, int8, optional, text, time};
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{Int4, Int8, Text, TimestampTz};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "v$gcspfmaster_info",
        columns: &[
            ("file_id", Int4),
            ("first_block", Int8),
            ("blocks", Int8),
            ("data_object_id", Int8),
            ("object_name", Text),
            ("gc_mastering_policy", Text),
            ("current_master", Int4),
            ("previous_master", Int4),
            ("remaster_cnt", Int8),
            ("last_remaster", TimestampTz),
            ("reason", Text),
        ],
        rows: Here(granules),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$policy_history",
        columns: &[
            ("event_date", TimestampTz),
            ("policy_event", Text),
            ("file_id", Int4),
            ("first_block", Int8),
            ("data_object_id", Int8),
            ("object_name", Text),
            ("target_instance_number", Int4),
            ("requests", Int8),
            ("requests_of_target", Int8),
            ("frozen_micro", Int8),
        ],
        rows: Here(history),
    },
];

/// Number and name of the object that the blocks are of, if that is known.
fn object(names: &HashMap<u32, String>, object: Option<ObjectId>) -> [Datum; 2] {
    let name = object.map(|o| match names.get(&o.0) {
        Some(name) => name.clone(),
        None => format!("(object {})", o.0),
    });
    [object.map_or(NULL, |o| int8(o.0)), optional(name)]
}

fn granules(cx: &Context) -> Result<Rows> {
    let names = object_names(cx);
    let row = |g: GranuleRow| {
        let [object, name] = object(&names, g.object);
        let reason = g.reason.map(|(requests, of_master)| {
            format!("{of_master} of {requests} requests seen in gc_policy_time")
        });
        vec![
            int4(g.first.file().0),
            int8(g.first.block()),
            int8(g.blocks),
            object,
            name,
            text("Affinity"),
            int4(g.master.0),
            g.previous.map_or(NULL, |i| int4(i.0)),
            int8(g.moves),
            g.moved.map_or(NULL, time),
            optional(reason),
        ]
    };
    let cache = cx.database.engine().transactions().cache();
    Ok(cache.granules_taken().into_iter().map(row).collect())
}

fn history(cx: &Context) -> Result<Rows> {
    let names = object_names(cx);
    let row = |r: PolicyRow| {
        let [object, name] = object(&names, r.object);
        vec![
            time(r.at),
            text(match r.event {
                PolicyEvent::Take => "initiate_affinity",
                PolicyEvent::Offer => "push_affinity",
                PolicyEvent::Opened => "complete_affinity",
            }),
            int4(r.first.file().0),
            int8(r.first.block()),
            object,
            name,
            int4(r.target.0),
            int8(r.requests),
            int8(r.of_target),
            r.frozen.map_or(NULL, |t| int8(t.as_micros())),
        ]
    };
    let cache = cx.database.engine().transactions().cache();
    Ok(cache.policy_history().into_iter().map(row).collect())
}
