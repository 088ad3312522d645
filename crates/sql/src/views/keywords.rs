//! `pg_get_keywords()`: the words of PostgreSQL 15's grammar, by what a name may be.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::Source::Here;
use super::value::text;
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{Bool, Text};
use block::value::Datum;

/// Tables that functions give, under the functions' names.
pub const VIEWS: &[VirtualTable] = &[VirtualTable {
    schema: super::FUNCTIONS,
    name: "pg_get_keywords",
    columns: &[
        ("word", Text),
        ("catcode", Text),
        ("barelabel", Bool),
        ("catdesc", Text),
        ("baredesc", Text),
    ],
    rows: Here(keywords),
}];

/// What a word of the grammar may be the name of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Unreserved,
    NoFunctionOrType,
    FunctionOrType,
    Reserved,
}

/// The longest word of the grammar has seventeen letters.
const LONGEST: usize = 24;

/// The class of a word, in any case; none if it is no word of the grammar.
pub fn class(word: &str) -> Option<Class> {
    static CLASSES: LazyLock<HashMap<&str, Class>> = LazyLock::new(|| {
        let mut classes = HashMap::new();
        for (code, _, _, words) in WORDS {
            let class = match *code {
                "U" => Class::Unreserved,
                "C" => Class::NoFunctionOrType,
                "T" => Class::FunctionOrType,
                _ => Class::Reserved,
            };
            classes.extend(words.split_whitespace().map(|word| (word, class)));
        }
        classes
    });
    let mut folded = [0; LONGEST];
    let folded = folded.get_mut(..word.len())?;
    folded.copy_from_slice(word.as_bytes());
    folded.make_ascii_lowercase();
    let folded = std::str::from_utf8(folded).ok()?;
    CLASSES.get(folded).copied()
}

/// Whether a name must be quoted because it is a word of the grammar.
pub fn needs_quotes(name: &str) -> bool {
    static QUOTED: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let taken = WORDS.iter().filter(|(code, ..)| *code != "U");
        taken
            .flat_map(|(_, _, _, words)| words.split_whitespace())
            .collect()
    });
    QUOTED.contains(name)
}

fn keywords(_: &Context) -> Result<Rows> {
    let mut rows = std::collections::BTreeMap::new();
    for (code, meaning, bare, words) in WORDS {
        let label = match bare {
            true => "can be bare label",
            false => "requires AS",
        };
        for word in words.split_whitespace() {
            let row = vec![
                text(word),
                text(*code),
                Datum::Bool(*bare),
                text(*meaning),
                text(label),
            ];
            rows.insert(word, row);
        }
    }
    Ok(rows.into_values().collect())
}

const UNRESERVED: &str = "unreserved";
const NO_FUNCTION: &str = "unreserved (cannot be function or type name)";
const FUNCTION: &str = "reserved (can be function or type name)";
const RESERVED: &str = "reserved";

/// Code of the category, its meaning, whether the word may name a column without AS, and the words.
#[rustfmt::skip]
const WORDS: &[(&str, &str, bool, &str)] = &[
    ("U", UNRESERVED, true, "\
        abort absolute access action add admin after aggregate also alter always asensitive \
        assertion assignment at atomic attach attribute backward before begin breadth by \
        cache call called cascade cascaded catalog chain characteristics checkpoint class \
        close cluster columns comment comments commit committed compression configuration \
        conflict connection constraints content continue conversion copy cost csv cube \
        current cursor cycle data database deallocate declare defaults deferred definer \
        delete delimiter delimiters depends depth detach dictionary disable discard document \
        domain double drop each enable encoding encrypted enum escape event exclude \
        excluding exclusive execute explain expression extension external family finalize \
        first following force forward function functions generated global granted groups \
        handler header hold identity if immediate immutable implicit import include \
        including increment index indexes inherit inherits inline input insensitive insert \
        instead invoker isolation key label language large last leakproof level listen load \
        local location lock locked logged mapping match matched materialized maxvalue merge \
        method minvalue mode move name names new next nfc nfd nfkc nfkd no normalized \
        nothing notify nowait nulls object of off oids old operator option options \
        ordinality others overriding owned owner parallel parameter parser partial partition \
        passing password plans policy preceding prepare prepared preserve prior privileges \
        procedural procedure procedures program publication quote range read reassign \
        recheck recursive ref referencing refresh reindex relative release rename repeatable \
        replace replica reset restart restrict return returns revoke role rollback rollup \
        routine routines rows rule savepoint schema schemas scroll search security sequence \
        sequences serializable server session set sets share show simple skip snapshot sql \
        stable standalone start statement statistics stdin stdout storage stored strict \
        strip subscription support sysid system tables tablespace temp template temporary \
        text ties transaction transform trigger truncate trusted type types uescape \
        unbounded uncommitted unencrypted unknown unlisten unlogged until update vacuum \
        valid validate validator value version view views volatile whitespace work wrapper \
        write xml yes zone"),
    ("U", UNRESERVED, false, "\
        day filter hour minute month over second varying within without year"),
    ("C", NO_FUNCTION, true, "\
        between bigint bit boolean coalesce dec decimal exists extract float greatest \
        grouping inout int integer interval least national nchar none normalize nullif \
        numeric out overlay position real row setof smallint substring time timestamp treat \
        trim values varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest \
        xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable"),
    ("C", NO_FUNCTION, false, "\
        char character precision"),
    ("T", FUNCTION, true, "\
        authorization binary collation concurrently cross current_schema freeze full ilike \
        inner is join left like natural outer right similar tablesample verbose"),
    ("T", FUNCTION, false, "\
        isnull notnull overlaps"),
    ("R", RESERVED, true, "\
        all analyse analyze and any asc asymmetric both case cast check collate column \
        constraint current_catalog current_date current_role current_time current_timestamp \
        current_user default deferrable desc distinct do else end false foreign in initially \
        lateral leading localtime localtimestamp not null only or placing primary references \
        select session_user some symmetric table then trailing true unique user using \
        variadic when"),
    ("R", RESERVED, false, "\
        array as create except fetch for from grant group having intersect into limit offset \
        on order returning to union where window with"),
];
